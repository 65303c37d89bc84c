package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/bytesize"
	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/node/transfer"
	"slipway.dev/slipway/internal/spec"
)

// selectors is the help text for selectors.
const selectors = `SELECTOR is a comma-separated list of host names, addresses, patterns (db-*), ranges
(node[2:10]), roles (role=worker), or all. CLUSTER@ before a term applies to this term
and the following ones. It can be a pattern: prod@all, *@role=control-plane. Clusters of
a pattern without a matching host cause a warning, and an error only if no cluster has
a matching host.`

// aimed returns the service, and the hosts of a selector.
func (a *app) aimed(ctx context.Context, selector string) (lifecycle.Service, []lifecycle.Target, error) {
	svc, err := a.svc(ctx)
	if err != nil {
		return nil, nil, err
	}
	cluster := ""
	for _, c := range spec.Choices(selector) {
		if c.Cluster == "" && cluster == "" {
			if cluster, err = a.which(ctx, nil); err != nil {
				return nil, nil, err
			}
		}
		if c.Cluster != "" && !strings.ContainsAny(c.Cluster, "*?") {
			if err := named(c.Cluster); err != nil {
				return nil, nil, err
			}
		}
	}
	targets, warnings, err := svc.Targets(ctx, selector, cluster)
	a.warn(warnings)
	return svc, targets, err
}

// labels returns a function that names a target: with its cluster if the targets are in
// several clusters.
func labels(targets []lifecycle.Target) func(cluster, host string) string {
	for _, t := range targets {
		if t.Cluster != targets[0].Cluster {
			return func(cluster, host string) string { return cluster + "@" + host }
		}
	}
	return func(_, host string) string { return host }
}

// work holds the flags that exec and cp share.
type work struct {
	root     bool
	parallel int
}

func (w *work) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.root, "sudo", false, "run as root with sudo instead of as the login user")
	cmd.Flags().IntVar(&w.parallel, "parallel", 50, "maximum number of hosts at the same time")
}

func (w *work) on(targets []lifecycle.Target) (lifecycle.Work, error) {
	if w.parallel < 1 {
		return lifecycle.Work{}, problem(idUsage, "", "--parallel must be at least 1, got %d", w.parallel)
	}
	return lifecycle.Work{Targets: targets, Root: w.root, Parallel: w.parallel}, nil
}

func (a *app) execCmd() *cobra.Command {
	var (
		w            work
		shell, stdin bool
	)
	cmd := &cobra.Command{
		Use: "exec SELECTOR -- PROGRAM [ARG...]", Short: "Run a program on hosts",
		Long: `Runs a program on all selected hosts in parallel. The arguments are passed to the
program unchanged, without a shell, except with --shell.

` + selectors + `

The output of one host is printed unchanged. For several hosts, each line begins
with the host's name and " | ". A line longer than 64 KiB continues on the next line,
which has " + " instead. With -o json there is one line for each host; output that is
not UTF-8 is encoded as base64, and the field "encoding" is "base64". Exit code 3 means
that the program failed on a host, or that a host was not reachable.`,
		Example: `  slipway exec role=worker -- uptime
  slipway exec prod@all,lab@all --sudo -- systemctl is-active kubelet
  slipway exec 'db-*' --shell -- 'df -h / | tail -1'
  slipway exec w1 --stdin --sudo -- tee /etc/motd < motd`,
		Args: cobra.ArbitraryArgs, ValidArgsFunction: a.selectorNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
				return problem(idUsage, "slipway exec SELECTOR -- PROGRAM [ARG...]", "expected one selector before --, and a program after it")
			}
			p := lifecycle.Program{Argv: args[1:]}
			if shell {
				p.Argv = []string{"/bin/sh", "-c", strings.Join(args[1:], " ")}
			}
			if stdin {
				p.In = a.In
			}
			return a.exec(cmd.Context(), args[0], w, p)
		},
	}
	w.flags(cmd)
	cmd.Flags().BoolVar(&shell, "shell", false, "run the arguments as a command of /bin/sh on the host")
	cmd.Flags().BoolVarP(&stdin, "stdin", "i", false, "pass standard input to the program; only for one host")
	return cmd
}

func (a *app) exec(ctx context.Context, selector string, flags work, p lifecycle.Program) error {
	svc, targets, err := a.aimed(ctx, selector)
	if err != nil {
		return err
	}
	w, err := flags.on(targets)
	if err != nil {
		return err
	}
	var finish func()
	out := &sink{w: a.Out}
	p.Output, w.Done, finish = a.outputs(out, targets)
	results, err := svc.Exec(ctx, w, p)
	finish()
	if err != nil {
		return err
	}
	return out.failed(a.worked(ctx, targets, results))
}

// worked prints which hosts failed, and why. It returns an exitError if a host failed or
// a file was skipped.
func (a *app) worked(ctx context.Context, targets []lifecycle.Target, results []lifecycle.HostResult) error {
	label := labels(targets)
	failed, skipped := 0, 0
	for _, r := range results {
		skipped += r.Skipped()
		a.warn(leftOut(r, label(r.Cluster, r.Host)))
		if !r.Failed() {
			continue
		}
		failed++
		d := diag.Diagnostic{Severity: diag.Error, Message: fmt.Sprintf("the program failed with exit code %d", r.ExitCode)}
		if r.Error != nil {
			d = *r.Error
		}
		d.Host, d.Message = label(r.Cluster, r.Host), view.Printable(d.Message) // the message may come from the host
		a.warn(diag.List{d})
	}
	if ctx.Err() != nil {
		return &exitError{code: exitInterrupted}
	}
	if failed == 0 && skipped == 0 {
		return nil
	}
	if skipped > 0 {
		a.say("Skipped in directories: %d.", skipped)
	}
	if failed > 0 && len(results) > 1 {
		a.say("%d of %d hosts failed.", failed, len(results))
	}
	return &exitError{code: exitPartial}
}

// leftOut returns warnings for the files of directories that were not copied.
func leftOut(r lifecycle.HostResult, host string) diag.List {
	if r.Skipped() == 0 {
		return nil
	}
	var list diag.List
	say := func(message string) {
		list = append(list, diag.Diagnostic{ID: idCopySkipped, Severity: diag.Warning, Host: host, Message: message})
	}
	for _, f := range r.Copied.SkippedFiles { // paths and reasons may come from the host
		say(view.Printable(f.Path) + " was not copied: " + view.Printable(f.Reason))
	}
	if more := r.Skipped() - len(list); more > 0 {
		say(fmt.Sprintf("%d more files were not copied", more))
	}
	return list
}

func (a *app) cpCmd() *cobra.Command {
	var w work
	cmd := &cobra.Command{
		Use: "cp SRC DST", Short: "Copy files and directories to or from hosts",
		Long: `Copies a file, or a directory with its content and modes, to or from hosts. The
argument SELECTOR:PATH is on the hosts; a relative PATH is relative to the home of the
login user. For a local file with a colon in its name, give a path: ./a:b. A file is
replaced only after it has arrived completely and is verified; an existing file keeps
its owner, group and mode. To continue an interrupted copy, run the command again.

` + selectors + `

The command skips entries of a directory that cannot be read, that change during the
copy, or that are not a file, directory or link. It lists skipped entries. For a file
that grows, the initial content is copied. For a copy from several hosts, DST gets a
directory for each host. Exit code 3 means that a host failed or that something was
skipped.`,
		Example: `  slipway cp ./app.conf role=worker:/etc/app/ --sudo
  slipway cp certs prod@node[2:10]:/srv/certs
  slipway cp all:/var/log/syslog ./logs --sudo`,
		Args: cobra.ExactArgs(2), ValidArgsFunction: a.copyNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, arg := range args {
				if strings.HasPrefix(arg, ":") { // probably an empty variable, and not a local file
					return problem(idUsage, "use ./"+arg+" for a local file with this name", "%q has no hosts before the colon", arg)
				}
			}
			from, src, remoteFrom := hostPath(args[0])
			to, dst, remoteTo := hostPath(args[1])
			switch {
			case remoteFrom && remoteTo:
				return problem(idUsage, "copy to this machine first, and then to the other hosts", "one of the two paths must be on this machine")
			case remoteFrom:
				return a.copy(cmd.Context(), from, w, lifecycle.Copy{Here: dst, There: src, Fetch: true})
			case remoteTo:
				return a.copy(cmd.Context(), to, w, lifecycle.Copy{Here: src, There: dst})
			}
			return problem(idUsage, "give the hosts: slipway cp SRC SELECTOR:DST", "neither path is on a host")
		},
	}
	w.flags(cmd)
	return cmd
}

// hostPath splits SELECTOR:PATH. Colons in brackets do not count. A slash before the
// colon makes the argument a local file.
func hostPath(arg string) (selector, path string, onHosts bool) {
	depth := 0
	for i, c := range arg {
		switch {
		case c == '[':
			depth++
		case c == ']':
			depth--
		case c == '/':
			return "", arg, false
		case c == ':' && depth == 0:
			return arg[:i], arg[i+1:], true
		}
	}
	return "", arg, false
}

func (a *app) copy(ctx context.Context, selector string, flags work, c lifecycle.Copy) error {
	svc, targets, err := a.aimed(ctx, selector)
	if err != nil {
		return err
	}
	w, err := flags.on(targets)
	if err != nil {
		return err
	}
	label := labels(targets)
	size := a.Size
	if a.format != view.Text {
		size = nil
	}
	shown := view.NewCopying(a.Err, view.Options{Style: a.style(), Size: size, Now: a.env.Now})
	defer shown.Close()
	out := &sink{w: a.Out}
	c.Read = shown.Read
	c.Progress = func(t lifecycle.Target, p transfer.Progress) {
		shown.See(label(t.Cluster, t.Host.Name), view.CopyProgress(p))
	}
	if a.format != view.Text {
		w.Done = func(r lifecycle.HostResult) { _ = view.Item(out, a.format, r) } // out keeps the error
	}
	results, err := svc.Copy(ctx, w, c)
	shown.Close()
	if err != nil {
		return err
	}
	a.copied(results, c, label)
	return out.failed(a.worked(ctx, targets, results))
}

// copied prints where the copies are.
func (a *app) copied(results []lifecycle.HostResult, c lifecycle.Copy, label func(cluster, host string) string) {
	for _, r := range results {
		if r.Copied == nil || r.Failed() {
			continue
		}
		what := fmt.Sprintf("%d files, %s", r.Copied.Files, bytesize.Bytes(r.Copied.Bytes))
		if r.Copied.Files == 1 {
			what = bytesize.Bytes(r.Copied.Bytes)
		}
		where := label(r.Cluster, r.Host) + ":" + view.Printable(r.Copied.To)
		if c.Fetch {
			where = r.Copied.To
			if rel, err := filepath.Abs("."); err == nil {
				if short, err := filepath.Rel(rel, where); err == nil && filepath.IsLocal(short) {
					where = short
				}
			}
		}
		a.say("%s  (%s)", where, what)
	}
}

// selectorNames completes a selector: hosts and roles of the cluster to use, and the
// names of clusters.
func (a *app) selectorNames(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.selectable(cmd.Context(), begin), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

func (a *app) selectable(ctx context.Context, begin string) []string {
	svc, err := a.svc(ctx)
	if err != nil {
		return nil
	}
	before := begin[:strings.LastIndex(begin, ",")+1]
	term := begin[len(before):]
	cluster, _, named := strings.Cut(term, "@")
	prefix := before
	if named {
		prefix += cluster + "@"
	} else if cluster, err = a.which(ctx, nil); err != nil {
		cluster = ""
	}
	out := []string{}
	if c, err := svc.Cluster(ctx, cluster); err == nil {
		for _, h := range c.Spec.Hosts {
			out = append(out, prefix+h.Name)
			for _, r := range h.Roles {
				out = append(out, prefix+"role="+string(r))
			}
		}
		out = append(out, prefix+"all")
	}
	if !named {
		list, err := svc.Clusters(ctx)
		for i := 0; err == nil && i < len(list); i++ {
			out = append(out, before+list[i].Name+"@")
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// copyNames completes a path: local files, or hosts.
func (a *app) copyNames(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 || strings.ContainsAny(begin, "/:.") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var out []string
	for _, s := range a.selectable(cmd.Context(), begin) {
		if !strings.HasSuffix(s, "@") {
			s += ":"
		}
		out = append(out, s)
	}
	return out, cobra.ShellCompDirectiveNoSpace
}
