//go:build !unix

package document

const dontFollow = 0
