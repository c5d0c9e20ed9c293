// Parts of a page that are loaded when they are needed, even if the hub restarts at that moment.
import { pause } from "./pause";

const WAITS_MS = [500, 1000, 2000, 4000, 8000, 15_000, 15_000, 15_000]; // a minute in all

/** Retries for as long as a hub takes to restart: once a part has failed, React never loads it again. */
export async function retryImport<T>(load: () => Promise<T>): Promise<T> {
  for (const wait of WAITS_MS) {
    try {
      return await load();
    } catch {
      await pause(wait);
    }
  }
  return load();
}
