package sandboxcmd

import (
	"bufio"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/sandbox"
)

// confirm asks at the terminal; where there is none, it refuses.
func confirm(s Streams, question string) error {
	if asTerminal(s.In) == nil {
		return diag.List{{ID: "confirmation-needed", Severity: diag.Error, Message: question, Hint: "--yes answers yes"}}
	}
	fmt.Fprintf(s.Err, "%s [y/N] ", question)
	line, err := bufio.NewReader(s.In).ReadString('\n')
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	return errors.New("nothing was done")
}

func signalOf(exit *exec.ExitError) int {
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return int(ws.Signal())
	}
	return 0
}

func completeMachines(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return names(func(sb *sandbox.Sandbox) (out []string) {
		for _, m := range sb.Machines() {
			out = append(out, m.Name())
		}
		return out
	}), cobra.ShellCompDirectiveNoFileComp
}

func completeSandboxes(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return names(func(sb *sandbox.Sandbox) []string { return []string{sb.Name()} }), cobra.ShellCompDirectiveNoFileComp
}

// names completes; where that fails there is nothing to offer.
func names(of func(*sandbox.Sandbox) []string) (out []string) {
	h, err := home()
	if err != nil {
		return nil
	}
	all, err := sandbox.List(h)
	if err != nil {
		return nil
	}
	for _, sb := range all {
		out = append(out, of(sb)...)
	}
	return out
}
