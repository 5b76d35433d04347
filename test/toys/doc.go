// Package toys adds attributes, a kind of layout and an operation to the tree, in an overlay, and runs what
// they must pass: CONTRIBUTING.md says how to add one, and this proves it.
package toys
