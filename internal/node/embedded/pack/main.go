// Command pack compresses a node helper program to standard output for embedding: pack
// PROGRAM > slipway-node-linux-ARCH.gz
package main

import (
	"fmt"
	"os"

	"slipway.dev/slipway/internal/node/embedded"
)

func main() {
	if err := pack(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func pack(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: pack PROGRAM > PACKED")
	}
	program, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	packed, err := embedded.Pack(program)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(packed)
	return err
}
