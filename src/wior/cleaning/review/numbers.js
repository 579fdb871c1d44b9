// Numbers as people read them.

const WHOLE = new Intl.NumberFormat("en");
const whole = number => WHOLE.format(number);
const countText = (number, one, many) => `${whole(number)} ${number === 1 ? one : many}`;
const rowsText = number => countText(number, "row", "rows");
const percent = share => `${(100 * share).toFixed(share > 0 && share < 0.0995 ? 1 : 0)}%`;
const decimal = score => (score > 0 && score < 0.0005 ? "<0.001" : score.toFixed(3));
const BRIEF = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 2 });
const brief = number => (number < 1000 ? String(number) : BRIEF.format(number));
