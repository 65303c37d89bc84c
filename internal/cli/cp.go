package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/bytesize"
	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/lifecycle/hostexec"
	"slipway.dev/slipway/internal/node/transfer"
)

func newCpCommand(c hostCommand) *cobra.Command {
	var w workFlags
	cmd := &cobra.Command{
		Use: "cp SRC DST", Short: "Copy files and directories to or from hosts",
		Long: `Copies a file, or a directory with its content and modes, to or from hosts. The
argument SELECTOR:PATH is on the hosts; a relative PATH is relative to the home of the
login user. For a local file with a colon in its name, give a path: ./a:b. A file is
replaced only after it has arrived completely and is verified; an existing file keeps
its owner, group and mode. To continue an interrupted copy, run the command again.

` + selectorHelp + `

The command skips entries of a directory that cannot be read, that change during the
copy, or that are not a file, directory or link. It lists skipped entries. For a file
that grows, the initial content is copied. For a copy from several hosts, DST gets a
directory for each host. Exit code 3 means that a host failed or that something was
skipped.`,
		Example: `  slipway cp ./app.conf role=worker:/etc/app/ --sudo
  slipway cp certs prod@node[2:10]:/srv/certs
  slipway cp all:/var/log/syslog ./logs --sudo`,
		Args: cobra.ExactArgs(2), ValidArgsFunction: c.selector.completeCopyPath,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, arg := range args {
				if strings.HasPrefix(arg, ":") { // probably an empty variable, and not a local file
					return newProblem(idUsage, "use ./"+arg+" for a local file with this name", "%q has no hosts before the colon", arg)
				}
			}
			from, src, remoteFrom := splitHostPath(args[0])
			to, dst, remoteTo := splitHostPath(args[1])
			switch {
			case remoteFrom && remoteTo:
				return newProblem(idUsage, "copy to this machine first, and then to the other hosts", "one of the two paths must be on this machine")
			case remoteFrom:
				return c.copyFiles(cmd.Context(), from, w, hostexec.Copy{Here: dst, There: src, Fetch: true})
			case remoteTo:
				return c.copyFiles(cmd.Context(), to, w, hostexec.Copy{Here: src, There: dst})
			}
			return newProblem(idUsage, "give the hosts: slipway cp SRC SELECTOR:DST", "neither path is on a host")
		},
	}
	w.addTo(cmd)
	return cmd
}

// splitHostPath splits SELECTOR:PATH. Colons in brackets do not count. A slash before the
// colon makes the argument a local file.
func splitHostPath(arg string) (selector, path string, onHosts bool) {
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

func (c hostCommand) copyFiles(ctx context.Context, selector string, flags workFlags, files hostexec.Copy) error {
	svc, targets, err := c.selector.selectHosts(ctx, selector)
	if err != nil {
		return err
	}
	w, err := flags.newWork(targets)
	if err != nil {
		return err
	}
	label := newTargetLabeler(targets)
	size := c.Size
	if c.format != view.Text {
		size = nil
	}
	shown := view.NewCopyDisplay(c.Err, view.Options{Style: c.errStyle(), Size: size, Now: c.env.Now})
	defer shown.Close()
	out := &errorKeeper{w: c.Out}
	files.Read = shown.ShowRead
	files.Progress = func(t hostexec.Target, p transfer.Progress) {
		shown.ShowProgress(label(t.Cluster, t.Host.Name), view.CopyProgress(p))
	}
	if c.format != view.Text {
		w.Done = func(r hostexec.HostResult) { _ = view.WriteItem(out, c.format, r) } // out keeps the error
	}
	results, err := svc.Copy(ctx, w, files)
	shown.Close()
	if err != nil {
		return err
	}
	c.printCopies(results, files.Fetch, label)
	return out.firstError(c.reportHostResults(ctx, targets, results))
}

// printCopies prints where the copies are.
func (c hostCommand) printCopies(results []hostexec.HostResult, isFetch bool, label func(cluster, host string) string) {
	for _, r := range results {
		if r.Copied == nil || r.Failed() {
			continue
		}
		what := fmt.Sprintf("%d files, %s", r.Copied.Files, bytesize.Format(r.Copied.Bytes))
		if r.Copied.Files == 1 {
			what = bytesize.Format(r.Copied.Bytes)
		}
		where := label(r.Cluster, r.Host) + ":" + view.PrintableLine(r.Copied.To)
		if isFetch {
			where = r.Copied.To
			if rel, err := filepath.Abs("."); err == nil {
				if short, err := filepath.Rel(rel, where); err == nil && filepath.IsLocal(short) {
					where = short
				}
			}
		}
		c.printMessage("%s  (%s)", where, what)
	}
}

// completeCopyPath completes a path: local files, or hosts.
func (s *hostSelector) completeCopyPath(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 || strings.ContainsAny(begin, "/:.") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var out []string
	for _, s := range s.listSelectable(cmd.Context(), begin) {
		if !strings.HasSuffix(s, "@") {
			s += ":"
		}
		out = append(out, s)
	}
	return out, cobra.ShellCompDirectiveNoSpace
}
