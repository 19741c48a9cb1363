// steady, for five minutes.
import { steady } from './steady.js';

const load = steady(300);
export const options = load.options;
export default load.run;
