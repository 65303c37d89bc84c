//go:build race

package lifecycle

const oneIn = 10
