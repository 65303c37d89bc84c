//go:build linux

package run

const crashEnv = "SLIPWAY_TEST_CRASH"

func crashChild(string) int { return 0 }
