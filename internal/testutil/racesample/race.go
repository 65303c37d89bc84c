//go:build race

package racesample

const isRace = true
