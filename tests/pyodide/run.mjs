// Runs a Python file in Pyodide under node. Usage:
//   node --stack-size=8000 run.mjs FOLDER_WITH_PYODIDE FOLDER_OF_WHEELS REPOSITORY FILE.py ARGUMENT...
// Wheels are unpacked as they are; numpy is Pyodide's own unless the folder has one. The repository is seen as /repository.
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [pyodideFolder, wheels, repository, file, ...rest] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(path.join(pyodideFolder, "pyodide.mjs")));
const pyodide = await loadPyodide({ env: { HOME: "/home/pyodide", OMP_NUM_THREADS: "1" } });
const names = fs.readdirSync(wheels).filter((name) => name.endsWith(".whl"));
if (!names.some((name) => name.startsWith("numpy-"))) {
    await pyodide.loadPackage("numpy");
}
const site = pyodide.runPython("import site; site.getsitepackages()[0]");
for (const name of names) {
    pyodide.unpackArchive(new Uint8Array(fs.readFileSync(path.join(wheels, name))), "wheel", { extractDir: site });
}
pyodide.FS.mkdirTree("/repository");
pyodide.FS.mount(pyodide.FS.filesystems.NODEFS, { root: repository }, "/repository");
pyodide.globals.set("ARGUMENTS", pyodide.toPy(rest));
process.exitCode = (await pyodide.runPythonAsync(fs.readFileSync(file, "utf8"))) ?? 0;
process.exit();
