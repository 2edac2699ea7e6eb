// The worker: Pyodide, numpy and Fluid, away from the page, so that it stays alive while Python computes.

const tell = (kind, more) => postMessage({ kind, ...more });

async function load() {
    const settings = await (await fetch("settings.json")).json();
    tell("progress", { text: "Loading Python …" });
    const { loadPyodide } = await import(new URL("pyodide.mjs", new URL(settings.pyodide, location)).href);
    const pyodide = await loadPyodide();
    tell("progress", { text: "Loading numpy …" });
    if (settings.numpy) {
        pyodide.unpackArchive(await (await fetch(settings.numpy)).arrayBuffer(), "wheel", { extractDir: site(pyodide) });
    } else {
        await pyodide.loadPackage("numpy");
    }
    tell("progress", { text: "Loading Fluid …" });
    pyodide.unpackArchive(await (await fetch(settings.fluid)).arrayBuffer(), "wheel", { extractDir: site(pyodide) });
    pyodide.globals.set("tell", (kind, json) => tell(kind, JSON.parse(json)));
    const script = await (await fetch("train.py")).text();
    const version = pyodide.runPython("import fluid; fluid.__version__");
    tell("ready", { script, text: `Fluid ${version} is here.` });
    return pyodide;
}

const site = (pyodide) => pyodide.runPython("import site; site.getsitepackages()[0]");
const loaded = load().catch((error) => tell("failed", { text: `${error}` }));

onmessage = async ({ data }) => {
    const pyodide = await loaded;
    if (!pyodide) {
        return;
    }
    const names = pyodide.toPy({ tell: pyodide.globals.get("tell"), __name__: "__main__" });
    try {
        await pyodide.runPythonAsync("import fluid\nfluid.framework.switch_main_program(fluid.Program())\n"
            + "fluid.framework.switch_startup_program(fluid.Program())");
        await pyodide.runPythonAsync(data.script, { globals: names, filename: "train.py" });
    } catch (error) {
        tell("failed", { text: `${error.message ?? error}` });
    } finally {
        names.destroy();
    }
};
