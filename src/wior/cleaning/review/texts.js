// Texts of the data: cut where there is little room, with what somebody searches for in view and marked.

const AROUND = 60; // characters in front of a match that lies far behind

function cut(text, most) {
  if (text.length <= most) return text;
  const last = text.charCodeAt(most - 2);
  return `${text.slice(0, last >= 0xd800 && last < 0xdc00 ? most - 2 : most - 1)}…`; // no letter is cut in two
}

// where a text holds the words, which are lower case; -1 where it does not
function matchIn(text, words) {
  const lower = words ? text.toLowerCase() : "";
  return lower.length === text.length ? lower.indexOf(words) : -1;
}

function excerpt(text, most, words) {
  const at = text.length > most ? matchIn(text, words) : -1;
  return at > most - 1 - words.length ? `…${cut(text.slice(Math.max(0, at - AROUND)), most - 1)}` : cut(text, most);
}

function showText(element, text, words = "") {
  element.textContent = text;
  if (!words) return;
  const parts = [];
  const lower = text.toLowerCase();
  let end = 0;
  for (let at = matchIn(text, words); at >= 0; at = lower.indexOf(words, end)) {
    parts.push(text.slice(end, at), make("mark", "", text.slice(at, at + words.length)));
    end = at + words.length;
  }
  if (end) element.replaceChildren(...parts, text.slice(end));
}

const columnsList = (columns, record, words = "") => {
  const list = make("dl", "all-fields");
  columns.forEach((name, column) => {
    const value = makeText("dd", "", "");
    showText(value, record[column], words);
    list.append(makeText("dt", "", name), value);
  });
  return list;
};

const CUT = "The end of a text stands for more than this page has room for.";
const isCut = record => record.some(text => (text.length === 200 || text.length === 100_000) && text.endsWith("…"));
