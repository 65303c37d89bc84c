package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/internal/cli/bundlecmd"
	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/cli/sandboxcmd"
	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/store"
)

// Identifiers of this package's diagnostics.
const (
	idUsage        = "usage"
	idLocked       = "locked"
	idStale        = "plan-stale"
	idPlanChanged  = "plan-changed"
	idNoCluster    = "no-cluster"
	idNotFound     = "not-found"
	idWhichCluster = "which-cluster"
	idNameMismatch = "name-mismatch"
	idOldCgroups   = "old-cgroups"
	idName         = "invalid-name"
	idFile         = "file-unreadable"
	idCacheForeign = "cache-foreign"
	idNoTerminal   = "no-terminal"
	idNotConfirmed = "not-confirmed"
	idRemoval      = "removal-not-allowed"
	idNoOperation  = "no-operation"
	idPluginFailed = "plugin-failed"
	idCopySkipped  = "copy-skipped"
	idBetween      = "upgrade-between-minors"
)

// app is one run of the program.
type app struct {
	Streams
	env      Env
	services NewService

	output       string // the value of -o
	format       view.Format
	yes          bool
	debug        bool
	ignoreErrors bool
	ignoreChecks []string
	breakLock    bool
	noColour     bool

	began   bool // reports whether a command was found and its flags were parsed
	talk    *talk
	working atomic.Pointer[string] // the cluster of the running operation

	dirs    program.Directories
	records *store.Store
	service lifecycle.Service
}

// talk is the destination of logs: stderr, or the view that is using stderr.
type talk struct {
	mu sync.Mutex
	w  io.Writer
}

func (t *talk) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.w.Write(b)
}

// through sends logs to w until the returned function is called.
func (t *talk) through(w io.Writer) (back func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.w
	t.w = w
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.w = before
	}
}

func newApp(s Streams, env Env, services NewService) *app {
	return &app{Streams: s, env: env, services: services, format: view.Text, talk: &talk{w: s.Err}}
}

func (a *app) root() *cobra.Command {
	root := program.WordsOnly(&cobra.Command{
		Use:   "slipway",
		Short: "Create, change, repair and delete Kubernetes clusters",
		Long: `Slipway creates, changes, repairs and deletes Kubernetes clusters on Linux
machines over SSH. It shows a plan before every change. You can interrupt an
operation at any time and resume it.

Exit codes:
  0    Done.
  1    Failed; you can resume.
  2    Refused; nothing was changed.
  3    Finished with failed hosts.
  4    Action needed (plan --exit-code, certs check).
  5    Another operation is running on the cluster.
  130  Interrupted; you can resume.`,
		Example: `  slipway create cluster                     # a one-node cluster on this machine
  slipway create config --host root@10.0.0.11=control-plane \
      --host root@10.0.0.12=worker > prod.yaml
  slipway create cluster -f prod.yaml
  slipway kubectl prod -- get nodes`,
		SilenceErrors: true, SilenceUsage: true,
		RunE:              help,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.begin(cmd) },
	})
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	a.addFlags(root)
	a.addCommands(root)
	a.mark(root)
	return root
}

// helpOn shows the help of the named command.
func helpOn(cmd *cobra.Command, args []string) error {
	topic, _, err := cmd.Root().Find(args)
	if err != nil {
		return misread(err, cmd.Root(), args)
	}
	topic.InitDefaultHelpFlag() // otherwise the help does not list it
	return topic.Help()
}

func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }

func (a *app) addFlags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.SortFlags = false
	f.StringVarP(&a.output, "output", "o", "text", "output `format`: text, json or yaml")
	f.BoolVarP(&a.yes, "yes", "y", false, "continue without asking for confirmation")
	f.BoolVar(&a.debug, "debug", false, "show debug logs, the output of programs, and unchanged steps")
	f.BoolVar(&a.noColour, "no-color", false, "do not use colours (same as NO_COLOR)")
	program.CompleteFlag(root, "output", "text", "json", "yaml")
}

func (a *app) addCommands(root *cobra.Command) {
	for _, group := range []*cobra.Group{
		{ID: "change", Title: "Change clusters:"}, {ID: "see", Title: "Inspect and use clusters:"}, {ID: "more", Title: "Other commands:"},
	} {
		root.AddGroup(group)
	}
	add := func(group string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("change", a.createCmd(), a.convertCmd(), a.addCmd(), a.planCmd(), a.applyCmd(), a.upgradeCmd(), a.resumeCmd(),
		a.rollbackCmd(), a.cancelCmd(), a.deleteCmd(), a.initCmd(), a.certsCmd(), a.precheckCmd())
	add("see", a.getCmd(), a.useCmd(), a.infoCmd(), a.etcdCmd(), a.operationsCmd(), a.kubeconfigCmd(), a.kubectlCmd(),
		a.execCmd(), a.cpCmd(), a.sshCmd(), a.dumpCmd())
	p := program.Program{
		In: a.In, Out: a.Out, Err: a.Err, Size: a.Size,
		Data: a.data, Agree: a.agree, Directories: a.directories, Releases: a.catalogue,
	}
	add("more", sandboxcmd.New(p), bundlecmd.New(p), a.versionCmd(), a.pluginCmd())
	root.SetHelpCommandGroupID("more")
	root.SetCompletionCommandGroupID("more")
	root.InitDefaultHelpCmd()
	if topics, _, err := root.Find([]string{"help"}); err == nil {
		topics.Run, topics.RunE = nil, helpOn
	}
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		program.WordsOnly(completion).RunE = help
		for _, shell := range completion.Commands() {
			program.WordsOnly(shell)
		}
	}
}

// begin checks the global flags.
func (a *app) begin(cmd *cobra.Command) (err error) {
	if a.format, err = view.ParseFormat(a.output); err != nil {
		a.format = view.Text
		return err
	}
	if a.format != view.Text && program.IsWordsOnly(cmd) {
		return fmt.Errorf("%s does not support -o %s", cmd.CommandPath(), a.format)
	}
	return nil
}

// mark makes every command set a.began before it runs: earlier errors are about
// the command line. It also turns off completion of files for commands without
// a completion function.
func (a *app) mark(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if err := filled(cmd, args); err != nil {
				return err
			}
			a.began = true
			return run(cmd, args)
		}
	}
	for _, c := range cmd.Commands() {
		a.mark(c)
	}
}

// filled refuses empty values of flags and empty arguments. If a variable of a
// script is not set, the command would otherwise use the default cluster or this
// machine. It does not check arguments after "--", which are for other programs.
func filled(cmd *cobra.Command, args []string) error {
	const hint = "give it a value or leave it out; check that the variables of your script are set"
	var empty []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		if len(values) == 0 || slices.Contains(values, "") {
			empty = append(empty, "--"+f.Name)
		}
	})
	if len(empty) > 0 {
		return problem(idUsage, hint, "empty value for %s", strings.Join(empty, " and "))
	}
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		args = args[:dash]
	}
	if i := slices.Index(args, ""); i >= 0 {
		return problem(idUsage, hint, "argument %d is empty", i+1)
	}
	return nil
}

// style returns the style of stderr.
func (a *app) style() view.Style {
	s := view.StyleOf(a.env.Getenv)
	s.Colour = s.Colour && !a.noColour && a.Size != nil
	return s
}

// outStyle returns the style of stdout.
func (a *app) outStyle() view.Style {
	s := view.StyleOf(a.env.Getenv)
	s.Colour = s.Colour && !a.noColour && a.Colour
	return s
}

// directories returns the caller's directories, which it looks up once.
func (a *app) directories() (program.Directories, error) {
	if a.dirs.Home == "" {
		d, err := a.env.directories()
		if err != nil {
			return program.Directories{}, refuse(err)
		}
		if err := d.Owner.CheckLinks(d.Cache); err != nil {
			return program.Directories{}, problem(idCacheForeign, "move the directory aside, or set SLIPWAY_CACHE to another directory",
				"root cannot use this cache directory: %v", err)
		}
		a.dirs = d
	}
	return a.dirs, nil
}

// store opens the store of Slipway's state, once.
func (a *app) store() (*store.Store, error) {
	if a.records != nil {
		return a.records, nil
	}
	d, err := a.directories()
	if err != nil {
		return nil, err
	}
	var opts []store.Option
	if d.Owner != nil {
		opts = append(opts, store.OwnedBy(d.Owner.UID, d.Owner.GID))
	}
	if a.records, err = store.Open(d.Home, opts...); err != nil {
		return nil, refuse(err)
	}
	return a.records, nil
}

// catalogue returns the releases that this program knows, including the user's own.
func (a *app) catalogue() (*release.Catalogue, error) {
	d, err := a.directories()
	if err != nil {
		return nil, err
	}
	c, err := release.Load(filepath.Join(d.Home, "releases.yaml"))
	return c, refuse(err)
}

// svc returns the service, which it creates once.
func (a *app) svc(ctx context.Context) (lifecycle.Service, error) {
	if a.service != nil {
		return a.service, nil
	}
	records, err := a.store()
	if err != nil {
		return nil, err
	}
	cat, err := a.catalogue()
	if err != nil {
		return nil, err
	}
	// Commands that only read work without the list. A command that adds a key to
	// it reports why it cannot be written.
	_, _ = records.KnownHosts()
	level := slog.LevelWarn
	if a.debug {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(a.talk, &slog.HandlerOptions{Level: level}))
	a.service, err = a.services(ctx, Settings{
		Store: records, Catalogue: cat, Cache: a.dirs.Cache, Home: a.dirs.User, Now: a.env.Now, Log: log, Warn: a.warnOnce(),
	})
	return a.service, refuse(err)
}

// data writes a result: with the function text, or as JSON or YAML. A reader that
// closes the output early does not cause an error and does not change the exit code.
func (a *app) data(value any, text func(io.Writer) error) error {
	if a.format == view.Text {
		return unlessUnread(text(a.outStyle().Writer(a.Out)))
	}
	return unlessUnread(view.Data(a.Out, a.format, value))
}

// unlessUnread returns an error of writing, or nil if the reader has closed the output.
func unlessUnread(err error) error {
	if unread(err) {
		return nil
	}
	return err
}

// document writes a YAML document, unchanged or as JSON.
func (a *app) document(text []byte) error {
	if a.format != view.JSON {
		if a.Colour { // a terminal
			text = []byte(view.Visible(string(text)))
		}
		_, err := a.Out.Write(text)
		return unlessUnread(err)
	}
	var value any
	if err := yaml.Unmarshal(text, &value); err != nil {
		return fmt.Errorf("writing as JSON: %w", err)
	}
	return view.Data(a.Out, a.format, value)
}

// say prints a message to stderr.
func (a *app) say(format string, args ...any) {
	fmt.Fprintln(a.Err, a.style().Text(fmt.Sprintf(format, args...)))
}
