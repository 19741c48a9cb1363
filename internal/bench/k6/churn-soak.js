// churn, for three minutes.
import { churn } from './churn.js';

export const options = churn(180);
export { default } from './churn.js';
