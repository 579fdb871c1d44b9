// What the review shows: arrays over all rows, and over the slots. These are the rows to decide in the order of their
// scores, `open` of them, and behind them verified rows, those with a wrong label first. Behind the slots come rows that
// are similar to some of them, which have an id, a record and a picture as well.

const NEAR = Math.fround(0.98); // rows as similar as this are near-duplicates

function takeData() {
  const about = JSON.parse(take("about"));
  const places = takeArray("places", Uint32Array);
  const ofSlots = values => values.constructor.from(places, place => values[place]);
  const all = {
    given: takeLabels("given", about.labelBytes),
    suggested: takeLabels("suggested", about.labelBytes),
    scores: takeArray("scores", Float32Array),
    verified: takeArray("verified", Uint8Array),
  };
  const verified = all.verified.reduce((sum, one) => sum + one, 0);
  return {
    ...about,
    all,
    rows: all.scores.length,
    verified,
    toJudge: all.scores.length - verified,
    slots: places.length,
    places,
    beyond: takeArray("beyond", Uint32Array),
    given: ofSlots(all.given),
    suggested: ofSlots(all.suggested),
    scores: ofSlots(all.scores),
    confidence: takeArray("confidence", Float32Array),
    ids: JSON.parse(take("ids")),
    records: JSON.parse(take("records") || "[]"),
    likelyEach: about.likely,
    likely: about.likely && takeEach("likely", takeLabels("likely", about.labelBytes), about.likely),
    similar: about.similar && takeEach("similar", takeArray("similar", Uint32Array), about.similar),
  };
}

// some values for each slot, and a number with each of them
function takeEach(name, values, each) {
  const numbers = takeArray({ likely: "likelihoods", similar: "similarity" }[name], Float32Array);
  return slot =>
    Array.from({ length: each }, (_, i) => ({ value: values[slot * each + i], number: numbers[slot * each + i] }));
}

// where the id, the record and the picture of a row are found; undefined where they are not on this page
function entryOf(data, place) {
  data.entries ??= new Map([...data.places, ...data.beyond].map((known, entry) => [known, entry]));
  return data.entries.get(place);
}

// for each slot whether its row has near-duplicates, found when somebody asks for these rows
const haveNear = data =>
  (data.haveNear ??= Uint8Array.from({ length: data.slots }, (_, slot) => nearOf(data, slot).length));

// the near-duplicates of the row in a slot
const nearOf = (data, slot) =>
  data.similar
    ? data.similar(slot).filter(({ value, number }) => number >= NEAR && value !== data.places[slot])
    : [];

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

const isVerified = (data, slot) => slot >= data.open;

// rows to judge that are flagged: their number, by given label, and by the pair of labels; pairs are an array, or a map where it would be
// vast
function count({ all, rows, classes }, threshold) {
  const limit = Math.fround(threshold);
  const { given, suggested, scores, verified } = all;
  const side = classes.length;
  const dense = side <= 1024;
  const byGiven = new Uint32Array(side);
  const pairs = dense ? new Uint32Array(side * side) : new Map();
  let flagged = 0;
  for (let row = 0; row < rows; row++) {
    if (verified[row] || !(scores[row] < limit)) continue;
    const pair = given[row] * side + suggested[row];
    flagged++;
    byGiven[given[row]]++;
    if (dense) pairs[pair]++;
    else pairs.set(pair, (pairs.get(pair) ?? 0) + 1);
  }
  const ofPair = (one, other) => (dense ? pairs[one * side + other] : (pairs.get(one * side + other) ?? 0));
  return { flagged, byGiven, pairs, ofPair };
}
