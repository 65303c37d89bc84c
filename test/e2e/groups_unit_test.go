package e2e

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// TestGroups_EndWithTheirChildren ends the programs that a program has started, too.
func TestGroups_EndWithTheirChildren(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(g *groups, cancel func()) error
		then error // of a program that is run afterwards
	}{
		{"the run is interrupted", func(g *groups, _ func()) error { return g.endAll() }, errInterrupted},
		{"its time is over", func(_ *groups, cancel func()) error { cancel(); return nil }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out, in, err := os.Pipe() // open as long as one of the programs runs
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			var g groups
			cmd := exec.CommandContext(ctx, "sh", "-c", "sleep 60 & echo started; wait")
			cmd.Stdout = in
			ended := make(chan error, 1)
			go func() {
				err := g.runInGroup(cmd)
				ended <- errors.Join(err, in.Close())
			}()
			// Only a test that fails waits so long.
			if err := out.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(out)
			if line, err := lines.ReadString('\n'); line != "started\n" {
				t.Fatalf("the program wrote %q, %v", line, err)
			}
			if err := tt.end(&g, cancel); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err == nil {
				t.Error("the program ended without an error")
			}
			if _, err := io.ReadAll(lines); err != nil {
				t.Errorf("the program's child still runs: %v", err)
			}
			if err := g.runInGroup(exec.CommandContext(t.Context(), "true")); !errors.Is(err, tt.then) {
				t.Errorf("the next program: error %v, want %v", err, tt.then)
			}
			if err := g.endAll(); err != nil {
				t.Errorf("ending nothing: %v", err)
			}
		})
	}
}
