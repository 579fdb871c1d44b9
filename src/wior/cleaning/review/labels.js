// The given and the suggested label, and how much the model thinks of each.

function makeLabels() {
  const root = make("div", "labels");
  const parts = {
    root,
    given: makeText("b", "label"),
    suggested: makeText("b", "label"),
    caption: make("span", "caption"),
    score: make("span"),
    sure: make("span"),
  };
  const given = make("div", "given");
  given.append(make("span", "caption", "given"), parts.given);
  const suggested = make("div", "suggested");
  suggested.append(parts.caption, parts.suggested);
  const numbers = make("div", "numbers");
  numbers.append(parts.score, parts.sure);
  root.append(given, make("span", "arrow", "→", { "aria-hidden": "true" }), suggested, numbers);
  return parts;
}

function showLabels(parts, data, slot) {
  const given = data.classes[data.given[slot]];
  const suggested = data.classes[data.suggested[slot]];
  parts.given.textContent = given;
  parts.given.title = given;
  parts.suggested.textContent = suggested;
  parts.suggested.title = suggested;
  const verified = isVerified(data, slot);
  parts.caption.textContent = verified ? "verified" : "suggested";
  parts.score.textContent = verified ? "" : `score ${decimal(data.scores[slot])}`;
  parts.sure.textContent = verified ? "" : `${percent(data.confidence[slot])} sure`;
  parts.root.classList.toggle("same", given === suggested);
}

const describe = (data, slot) =>
  `row ${data.ids[slot]}, given ${data.classes[data.given[slot]]}, ` +
  `${isVerified(data, slot) ? "verified" : "suggested"} ${data.classes[data.suggested[slot]]}`;

// cards are of one height, so all labels have as many lines as the longest name needs, side by side where all fit
function roomForLabels(classes, width) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `600 15px ${getComputedStyle(document.body).fontFamily}`;
  const longest = classes.reduce((most, name) => Math.max(most, pen.measureText(name).width), 0);
  if (longest <= (width - 30) / 2) return { stacked: false, lines: 1 };
  return { stacked: true, lines: Math.max(1, Math.min(3, Math.ceil((1.1 * longest) / width))) };
}
