// Elements of the page.

function make(tag, className = "", text = "", attributes = {}) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

// text of the data: its direction is its own and does not reach what stands around it
const makeText = (tag, className, text) => make(tag, className, text, { dir: "auto" });

const find = id => document.getElementById(id);
