// Decisions as CSV. The rule of the apostrophe is that of guard.py: who changes one changes both.

const FORMULA = /^[=+\-@\t\r']/;
const PLAIN_NUMBER = /^[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$/;

const guard = text => (FORMULA.test(text) && !PLAIN_NUMBER.test(text) ? `'${text}` : text);
const unguard = text => (text.startsWith("'") ? text.slice(1) : text);

const csvField = text => (/[",\r\n]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
const csvLine = texts => `${texts.map(text => csvField(guard(text))).join(",")}\r\n`;

function parseCsv(text) {
  const lines = [];
  let line = [];
  let at = text.charCodeAt(0) === 0xfeff ? 1 : 0;
  while (at < text.length) {
    let field = "";
    if (text[at] === '"') {
      for (;;) {
        const end = text.indexOf('"', at + 1);
        if (end < 0) throw new Error(`line ${lines.length + 1} has a quotation mark that is never closed`);
        field += text.slice(at + 1, end);
        at = end + 1;
        if (text[at] !== '"') break;
        field += '"';
      }
    }
    const start = at;
    while (at < text.length && text[at] !== "," && text[at] !== "\n" && text[at] !== "\r") at++;
    line.push(unguard(field + text.slice(start, at)));
    if (text[at] === ",") {
      if (++at === text.length) line.push("");
      else continue;
    }
    if (text[at] === "\r" && text[at + 1] === "\n") at++;
    at++;
    if (line.length > 1 || line[0] !== "") lines.push(line);
    line = [];
  }
  return lines;
}
