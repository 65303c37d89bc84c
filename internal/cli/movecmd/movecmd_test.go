package movecmd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/move"
)

// A recorder records the moves, and reports a note with characters that control a terminal.
type recorder struct{ moves []string }

func (r *recorder) Move(ctx context.Context, name string, to move.Target, progress event.Sink) error {
	if err := to.Confirm(ctx); err != nil {
		return err
	}
	bundle := "kept"
	if to.Bundle != nil {
		bundle = *to.Bundle
	}
	r.moves = append(r.moves, name+" "+to.Server+" "+bundle)
	event.SendNote(progress, "cp1", "not connected: \x1b[31mno")
	return nil
}

// runCommand runs `slipway move` with arguments, and returns its messages.
func runCommand(t *testing.T, r *recorder, agrees bool, args ...string) (string, error) {
	t.Helper()
	var messages bytes.Buffer
	cmd := NewCommand(program.Program{
		Out: io.Discard, Err: &messages,
		AskYesNo: func(context.Context, string) error {
			if agrees {
				return nil
			}
			return errors.New("the user does not agree")
		},
	}, Clusters{Choose: chooseName}, func(context.Context) (Mover, error) { return r, nil })
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(t.Context())
	return messages.String(), err
}

// chooseName returns the name in the arguments.
func chooseName(_ context.Context, args []string) (string, error) {
	if len(args) == 0 {
		return "", errors.New("which cluster")
	}
	return args[0], nil
}

// TestMove_RefusesBadAPI names files and APIs with which nothing can be moved.
func TestMove_RefusesBadAPI(t *testing.T) {
	r := &recorder{}
	missing := filepath.Join(t.TempDir(), "missing")
	_, err := runCommand(t, r, true, "prod", "--kubeconfig", missing)
	var refused diag.List
	if !errors.As(err, &refused) || refused[0].ID != "operator-kubeconfig-invalid" || !strings.Contains(err.Error(), missing) {
		t.Errorf("with a missing kubeconfig: %v", err)
	}
	closed := filepath.Join(t.TempDir(), "closed")
	text := `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
		users: [{name: a, user: {}}], clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}]}`
	if err := os.WriteFile(closed, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := runCommand(t, r, true, "prod", "--kubeconfig", closed); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("with a closed port: %v", err)
	}
	if _, err := runCommand(t, r, true); err == nil || err.Error() != "which cluster" {
		t.Errorf("a move without a cluster: %v", err)
	}
	if len(r.moves) > 0 {
		t.Errorf("moved: %v", r.moves)
	}
}

// TestMove_PassesNotesAndBundle moves to an API that has Clusters.
func TestMove_PassesNotesAndBundle(t *testing.T) {
	kubeconfig := serveAPI(t)
	for _, tc := range []struct {
		name, bundle string
		agrees       bool
		args         []string
	}{
		{"bundle kept", "kept", true, nil},
		{"bundle removed", "", true, []string{"--bundle", ""}},
		{"bundle replaced", "registry.example.com/bundle:v1", true, []string{"--bundle", "registry.example.com/bundle:v1"}},
		{"no consent", "", false, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := &recorder{}
			messages, err := runCommand(t, r, tc.agrees, append([]string{"prod", "--kubeconfig", kubeconfig, "--namespace", "team"}, tc.args...)...)
			if !tc.agrees {
				if err == nil || len(r.moves) > 0 {
					t.Errorf("without consent: %v, moved %v", err, r.moves)
				}
				return
			}
			if err != nil || len(r.moves) != 1 || !strings.HasPrefix(r.moves[0], "prod http") || !strings.HasSuffix(r.moves[0], " "+tc.bundle) {
				t.Errorf("moved %v, %v", r.moves, err)
			}
			if strings.Contains(messages, "\x1b") || !strings.Contains(messages, "cp1: not connected") ||
				!strings.Contains(messages, "kubectl --namespace team get cluster prod") {
				t.Errorf("messages: %q", messages)
			}
		})
	}
}
