// What the page was given, in blocks, each of which is read once.

function take(name) {
  const element = document.getElementById(name);
  const text = element ? element.textContent : "";
  element?.remove();
  return text;
}

function takeArray(name, Kind) {
  const text = atob(take(name));
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new Kind(bytes.buffer);
}

// places in the classes, in the narrowest numbers that hold all of them
const takeLabels = (name, bytes) => takeArray(name, { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array }[bytes]);
