// Package program gives commands access to the program: its streams, its global
// flags, and the caller's directories.
package program

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/fileowner"
	"slipway.dev/slipway/internal/release"
)

// A Program is the part of the program that a command needs.
type Program struct {
	In       io.Reader
	Out, Err io.Writer // Out is for data, Err for messages
	// Size returns the size of the terminal at Err; nil if Err is not a terminal.
	Size func() (columns, rows int)
	// WriteResult writes a result: with the function text, or value in the format of -o.
	WriteResult func(value any, text func(io.Writer) error) error
	// AskYesNo asks the question at the terminal and returns an error unless the
	// user agrees. With --yes it does not ask.
	AskYesNo func(ctx context.Context, question string) error
	// FindDirectories returns the caller's directories.
	FindDirectories func() (Directories, error)
	// LoadReleases returns the releases that can be installed, including the user's own.
	LoadReleases func() (*release.Catalogue, error)
}

// Directories are the caller's directories and their owner.
type Directories struct {
	Home  string // Slipway's state
	Cache string // downloads, builds and bundles
	User  string // the caller's home
	Owner *fileowner.Owner
}

// NewParentCommand returns a command that only has subcommands.
func NewParentCommand(use, short string, aliases ...string) *cobra.Command {
	return MarkTextOnly(&cobra.Command{
		Use: use, Short: short, Aliases: aliases, Args: cobra.NoArgs,
		// A misspelt command must be reported before the flags after it.
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		RunE:               func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	})
}

// textOnly is the annotation that marks commands.
const textOnly = "slipway.dev/words-only"

// MarkTextOnly marks a command whose output exists only as text: it refuses -o json
// and -o yaml.
func MarkTextOnly(cmd *cobra.Command) *cobra.Command {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[textOnly] = "true"
	return cmd
}

// IsTextOnly reports whether a command is marked.
func IsTextOnly(cmd *cobra.Command) bool { return cmd.Annotations[textOnly] != "" }
