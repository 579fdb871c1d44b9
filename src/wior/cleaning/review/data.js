// What the page was given: arrays over all rows, and over the slots, the rows of the lowest scores in the order of these.

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

function takeData() {
  const about = JSON.parse(take("about"));
  const Label = { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array }[about.labelBytes];
  const places = takeArray("places", Uint32Array);
  const ofSlots = values => values.constructor.from(places, place => values[place]);
  const all = {
    given: takeArray("given", Label),
    suggested: takeArray("suggested", Label),
    scores: takeArray("scores", Float32Array),
  };
  return {
    ...about,
    all,
    rows: all.scores.length,
    slots: places.length,
    places,
    given: ofSlots(all.given),
    suggested: ofSlots(all.suggested),
    scores: ofSlots(all.scores),
    confidence: takeArray("confidence", Float32Array),
    ids: JSON.parse(take("ids")),
    records: JSON.parse(take("records") || "[]"),
  };
}

// scores are single precision, and so is what they are compared with
const isBelow = (score, threshold) => score < Math.fround(threshold);

function slotsBelow(scores, threshold) {
  let low = 0;
  let high = scores.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (isBelow(scores[middle], threshold)) low = middle + 1;
    else high = middle;
  }
  return low;
}

// flagged rows: their number, by given label, and by the pair of labels; pairs are an array, or a map where it would be vast
function count({ all, rows, classes }, threshold) {
  const limit = Math.fround(threshold);
  const { given, suggested, scores } = all;
  const side = classes.length;
  const dense = side <= 1024;
  const byGiven = new Uint32Array(side);
  const pairs = dense ? new Uint32Array(side * side) : new Map();
  let flagged = 0;
  for (let row = 0; row < rows; row++) {
    if (!(scores[row] < limit)) continue;
    const pair = given[row] * side + suggested[row];
    flagged++;
    byGiven[given[row]]++;
    if (dense) pairs[pair]++;
    else pairs.set(pair, (pairs.get(pair) ?? 0) + 1);
  }
  const ofPair = (one, other) => (dense ? pairs[one * side + other] : (pairs.get(one * side + other) ?? 0));
  return { flagged, byGiven, pairs, ofPair };
}

const WHOLE = new Intl.NumberFormat("en");
const whole = number => WHOLE.format(number);
const rowsText = number => `${whole(number)} ${number === 1 ? "row" : "rows"}`;
const percent = share => `${(100 * share).toFixed(share > 0 && share < 0.0995 ? 1 : 0)}%`;
const decimal = score => (score > 0 && score < 0.0005 ? "<0.001" : score.toFixed(3));
const BRIEF = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 2 });
const brief = number => (number < 1000 ? String(number) : BRIEF.format(number));

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
