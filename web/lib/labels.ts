/** A code of the API, such as a state or a reason, for people: "not_polling" → "not polling". Sentences stay as they are. */
export function humanize(code: string): string {
  return /^[a-z0-9_]+$/.test(code) ? code.replaceAll("_", " ") : code;
}

export function capitalize(words: string): string {
  return words.charAt(0).toUpperCase() + words.slice(1);
}
