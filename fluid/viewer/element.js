// Elements of the page. All text comes from files: it only ever becomes text nodes.

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === 'click') made.addEventListener('click', value);
    else made.setAttribute(name, value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) made.append(child);
  return made;
}

// A row of a table, whose first cell says what the others are of.
function row(name, ...cells) {
  return element('tr', {}, element('th', {}, name), ...cells.map((cell) => element('td', {}, cell)));
}

// The colour of a kind, as the legend explains it.
function swatch(kind) {
  return element('i', { class: kind });
}

function small(text) {
  return element('small', {}, ` ${text}`);
}
