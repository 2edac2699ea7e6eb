// The page: shows what the worker tells, and starts it again when it is stopped.
"use strict";

const find = (id) => document.getElementById(id);
let worker = null;
let losses = [];

function start() {
    worker = new Worker("worker.js", { type: "module" });
    worker.onmessage = ({ data }) => handlers[data.kind](data);
    worker.onerror = (event) => handlers.failed({ text: event.message });
}

function say(text, failed = false) {
    find("status").textContent = text;
    find("status").className = failed ? "failed" : "";
}

function busy(is) {
    find("train").disabled = is;
    find("stop").disabled = !is;
}

function draw() {
    const most = Math.max(...losses);
    const width = Math.max(losses.length - 1, 1);
    const points = losses.map((loss, at) => `${(100 * at) / width},${98 - (94 * loss) / most}`);
    document.querySelector("#loss polyline").setAttribute("points", points.join(" "));
}

function digit(pixels, guess, right) {
    const figure = document.createElement("figure");
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = 8;
    const image = canvas.getContext("2d").createImageData(8, 8);
    pixels.forEach((value, at) => image.data.set([0, 0, 0, Math.round((127.5 * (value + 1)))], 4 * at));
    const context = canvas.getContext("2d");
    context.putImageData(image, 0, 0);
    canvas.style.background = "#fff";
    const caption = document.createElement("figcaption");
    caption.textContent = guess === right ? `${guess}` : `${guess}, is ${right}`;
    figure.className = guess === right ? "" : "wrong";
    figure.append(canvas, caption);
    return figure;
}

const handlers = {
    progress: ({ text }) => say(text),
    ready: ({ script, text }) => {
        find("script").value ||= script;
        say(text);
        busy(false);
        document.documentElement.dataset.ready = "yes";
    },
    program: ({ text }) => (find("program").textContent = text),
    step: ({ loss }) => losses.push(loss),
    epoch: ({ text }) => (say(text), draw()),
    guesses: ({ items }) => find("digits").replaceChildren(...items.map((item) => digit(...item))),
    done: ({ text, accuracy }) => {
        say(text);
        busy(false);
        document.documentElement.dataset.accuracy = accuracy;
    },
    failed: ({ text }) => {
        say(text, true);
        busy(false);
        document.documentElement.dataset.failed = "yes";
    },
};

find("train").onclick = () => {
    losses = [];
    delete document.documentElement.dataset.accuracy;
    busy(true);
    say("Training …");
    worker.postMessage({ script: find("script").value });
};
find("stop").onclick = () => {
    worker.terminate();
    say("Stopped; starting again …");
    busy(true);
    find("stop").disabled = true;
    start();
};
start();
