// Package daemon is the command line of slipwayd. Its commands start the management server, or
// talk to a server that runs on the same data directory.
package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/version"
)

// The exit codes.
const (
	exitDone        = 0
	exitFailed      = 1
	exitRefused     = 2 // refused; nothing was changed
	exitInterrupted = 130
)

// defaultDataDir is the default data directory of a server.
const defaultDataDir = "/var/lib/slipwayd/data"

// Streams are the program's input and outputs: Out is for data, Err for messages and logs.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// A program is one run of slipwayd.
type program struct {
	Streams
	dataDir string
}

// Main runs a command line without the program's name and returns the exit code. The first
// SIGINT, SIGTERM or SIGHUP stops the server in order, and another one ends the program at once.
func Main(ctx context.Context, args []string, s Streams) int {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	p := &program{Streams: s}
	root := p.newRootCommand()
	root.SetArgs(args)
	code := make(chan int, 1)
	go func() { code <- p.reportError(ctx, root.ExecuteContext(ctx)) }()
	stopping := false
	for {
		select {
		case c := <-code:
			return c
		case <-signals:
			if stopping {
				fmt.Fprintln(s.Err, "Stopped without waiting.")
				return exitInterrupted
			}
			stopping = true
			cancel()
		}
	}
}

func (p *program) newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "slipwayd",
		Short: "Run the management server of Slipway",
		Long: `slipwayd runs the management server of Slipway: a Kubernetes API with the kinds
Cluster and Operation, in one process with its own database. It needs no
Kubernetes cluster.

Exit codes:
  0    Done.
  1    Failed.
  2    Refused; nothing was changed.
  130  Interrupted.`,
		Example: `  slipwayd server --data-dir /var/lib/slipwayd/data
  slipwayd kubeconfig --user jane --group platform --ttl 24h --out jane.kubeconfig
  slipwayd backup --out server.tar`,
		SilenceErrors: true, SilenceUsage: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(p.In)
	root.SetOut(p.Out)
	root.SetErr(p.Err)
	root.PersistentFlags().StringVar(&p.dataDir, "data-dir", defaultDataDir, "data `directory` of the server")
	root.AddCommand(
		newServerCommand(p), newStatusCommand(p), newKubeconfigCommand(p), newRotateEncryptionKeyCommand(p),
		newBackupCommand(p), newRestoreCommand(p), newReleaseCommand(p), newListBackupsCommand(p), newBundleCommand(p),
		newOperatorCommand(p), newRunOperationCommand(p), newVersionCommand(p),
	)
	return root
}

// reportError prints an error and returns the exit code.
func (p *program) reportError(ctx context.Context, err error) int {
	if err == nil {
		return exitDone
	}
	var list diag.List
	if errors.As(err, &list) {
		for _, d := range list {
			fmt.Fprintln(p.Err, "error: "+escapeControls(d.String()))
		}
		return exitRefused
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		fmt.Fprintln(p.Err, "Interrupted.")
		return exitInterrupted
	}
	fmt.Fprintln(p.Err, "error: "+escapeControls(err.Error()))
	if isUsageError(err) {
		fmt.Fprintln(p.Err, "    hint: run 'slipwayd --help'")
		return exitRefused
	}
	return exitFailed
}

// usageErrors are the beginnings of errors about the command line.
var usageErrors = []string{
	"unknown command", "unknown flag", "unknown shorthand", "flag needs", "invalid argument", "required flag", "accepts ",
	"if any flags in the group",
}

// isUsageError reports whether an error is about the command line.
func isUsageError(err error) bool {
	for _, begin := range usageErrors {
		if strings.HasPrefix(err.Error(), begin) {
			return true
		}
	}
	return false
}

// escapeControls returns a text of several lines that does not control the terminal.
func escapeControls(text string) string { return diag.EscapeControls(text, "\n\t") }

// writeJSON writes a value as indented JSON.
func (p *program) writeJSON(value any) error {
	e := json.NewEncoder(p.Out)
	e.SetIndent("", "  ")
	return e.Encode(value)
}

func newVersionCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(p.Out, "slipwayd "+version.Get().Version)
			return err
		},
	}
}
