// Package change works out what a change does to a host: the steps, what undoes each of
// them, what the host should be afterwards, and whom they disturb. It is pure, and the only
// code that knows this: a plan that shows what an apply does asks it too.
package change
