package cli

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/spec"
)

// addFileFlag adds -f.
func addFileFlag(cmd *cobra.Command, file *string, use string) {
	cmd.Flags().StringVarP(file, "file", "f", "", use)
	_ = cmd.MarkFlagFilename("file", "yaml", "yml", "json") // the flag is there
}

// addNoHeadersFlag adds the flag that omits a table's header.
func addNoHeadersFlag(cmd *cobra.Command, without *bool) {
	cmd.Flags().BoolVar(without, "no-headers", false, "omit the header of the table")
}

// addOptionFlags adds the flags that are common to commands that change hosts.
func addOptionFlags(cmd *cobra.Command, o *lifecycle.Options) {
	addIgnoreFlags(cmd, o)
	addBreakLockFlag(cmd, o)
}

// addIgnoreFlags adds the flags that ignore errors and findings of hosts.
func addIgnoreFlags(cmd *cobra.Command, o *lifecycle.Options) {
	cmd.Flags().BoolVar(&o.IgnoreErrors, "ignore-errors", false, "continue on other hosts when a host fails")
	addIgnoreCheckFlag(cmd, o)
}

// addIgnoreCheckFlag adds the flag that ignores findings of hosts.
func addIgnoreCheckFlag(cmd *cobra.Command, o *lifecycle.Options) {
	cmd.Flags().StringArrayVar(&o.IgnoreChecks, "ignore-check", nil,
		"ignore the precheck finding with this `id` (repeatable; saved with the operation)")
}

func addBreakLockFlag(cmd *cobra.Command, o *lifecycle.Options) {
	cmd.Flags().BoolVar(&o.BreakLock, "break-lock", false, "take over a lock whose holder is not reachable")
	cmd.Flags().BoolVar(&o.TakeOver, "take-over", false, "take the cluster from the management server that manages it")
}

func addAllowRemovalFlag(cmd *cobra.Command, allow *bool) {
	cmd.Flags().BoolVar(allow, "allow-removal", false, "allow the plan to remove hosts and data")
}

// addLeavingHostFlags adds the flags for hosts that are removed from a running cluster.
func addLeavingHostFlags(cmd *cobra.Command, allowRemoval, forget *bool, r *lifecycle.Removal) {
	addAllowRemovalFlag(cmd, allowRemoval)
	addDrainFlags(cmd, r, lifecycle.DefaultDrainTimeout)
	f := cmd.Flags()
	f.Lookup("force").Usage += "; with --forget, also remove hosts that are running"
	f.BoolVar(forget, "forget", false, "remove hosts even if they are unreachable; their files remain")
}

// addDrainFlags adds the flags for draining nodes. A limit of 0 means the limit with
// which the operation began.
func addDrainFlags(cmd *cobra.Command, r *lifecycle.Removal, limit time.Duration) {
	f := cmd.Flags()
	f.BoolVar(&r.Force, "force", false,
		"delete pods that cannot be evicted: pods without a controller, or with a disruption budget that never allows it")
	r.DrainTimeout = limit
	f.Var((*limitFlag)(&r.DrainTimeout), "drain-timeout", "how long to wait for the pods of a node to terminate")
}

// A limitFlag is a duration greater than zero.
type limitFlag time.Duration

func (l *limitFlag) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err == nil && d <= 0 {
		err = errors.New("must be greater than zero, for example 10m")
	}
	if err != nil {
		return err
	}
	*l = limitFlag(d)
	return nil
}

func (l *limitFlag) Type() string { return "duration" }

func (l *limitFlag) String() string {
	if *l == 0 {
		return "" // none
	}
	return time.Duration(*l).String()
}

func addMaxUnavailableFlag(cmd *cobra.Command, limit *string) {
	cmd.Flags().StringVar(limit, "max-unavailable", "",
		"how many workers may be unavailable at the same time: a number, or a percentage such as 20% (default 1)")
}

func addPauseFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "pause-after", "", "pause an upgrade after this `step`: canary, control-plane or wave")
}

// parsePausePoint parses the value of --pause-after.
func parsePausePoint(text string) (lifecycle.Pause, error) {
	p := lifecycle.Pause(text)
	if !slices.Contains([]lifecycle.Pause{"", lifecycle.PauseCanary, lifecycle.PauseControlPlane, lifecycle.PauseWave}, p) {
		return "", newProblem(idUsage, "use --pause-after canary, control-plane or wave", "invalid value %q for --pause-after", text)
	}
	return p, nil
}

// resolveBundlePath resolves a bundle from the command line. An existing file or
// directory, or a name that looks like a path, becomes an absolute path. Any other
// name is a registry reference and is returned unchanged.
func resolveBundlePath(name string) (string, error) {
	if _, err := os.Stat(name); err == nil || spec.IsBundlePath(name) {
		path, err := filepath.Abs(name)
		return path, markRefused(err)
	}
	return name, nil
}
