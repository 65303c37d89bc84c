package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/spec"
)

// problem is a refusal with one reason.
func problem(id, hint, format string, args ...any) error {
	return diag.List{{ID: id, Severity: diag.Error, Message: fmt.Sprintf(format, args...), Hint: hint}}
}

// fileFlag adds -f.
func fileFlag(cmd *cobra.Command, file *string, use string) {
	cmd.Flags().StringVarP(file, "file", "f", "", use)
	_ = cmd.MarkFlagFilename("file", "yaml", "yml", "json") // the flag is there
}

// a cluster from a file.
type described struct {
	*spec.Loaded
	dir  string // where its relative paths begin
	path string // absolute, "" if it is no file
}

// called is what people call a file.
func called(file string) string {
	if file == "-" {
		return "standard input"
	}
	return file
}

// maxFile is the largest cluster file or saved plan, in bytes: a device must
// not be read until this machine has no memory left.
const maxFile = 64 << 20

// read reads a file; "-" is standard input. Neither needs to be an ordinary
// file; when ctx is done, what has not come is not waited for.
func (a *app) read(ctx context.Context, file string) ([]byte, string, error) {
	type content struct {
		data []byte
		dir  string
		err  error
	}
	come := make(chan content, 1)
	go func() { // ends with the program at the latest: a read cannot be called off
		data, dir, err := a.readAll(file)
		come <- content{data, dir, err}
	}()
	select {
	case <-ctx.Done():
		return nil, "", context.Cause(ctx)
	case c := <-come:
		return c.data, c.dir, c.err
	}
}

func (a *app) readAll(file string) (data []byte, dir string, err error) {
	in := a.In
	if file == "-" {
		dir, err = os.Getwd()
	} else {
		var f *os.File
		if f, err = os.Open(file); err == nil {
			defer f.Close()
			in = f
			dir, err = filepath.Abs(filepath.Dir(file))
		}
	}
	if err == nil {
		data, err = io.ReadAll(io.LimitReader(in, maxFile+1))
	}
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("it has more than %d MiB", maxFile>>20)
	}
	if err != nil {
		return nil, "", problem(idFile, "", "reading %s: %v", called(file), unwrapPath(err))
	}
	return data, dir, nil
}

// unwrapPath leaves out the path, which has been said.
func unwrapPath(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// load reads a cluster from a file's content and checks the files it names.
// Warnings are told.
func (a *app) load(ctx context.Context, file string, data []byte, dir string) (*described, error) {
	cat, err := a.catalogue()
	if err != nil {
		return nil, err
	}
	paths := spec.Paths{Dir: dir, Home: a.dirs.User}
	loader := spec.Loader{
		Files: &paths,
		Supported: func(v string) error {
			_, err := cat.With(v, release.Components{}).Resolve(v) // which minors bundles have, the service sees
			return err
		},
	}
	loader.Recorded = func(name string) *v1alpha1.Cluster {
		svc, err := a.svc(ctx)
		if err != nil {
			return nil // whoever needs it says so
		}
		c, _ := svc.Cluster(ctx, name) // nil if there is none
		return c
	}
	loaded, err := loader.Load(called(file), data)
	if err != nil {
		return nil, err
	}
	a.warn(loaded.Warnings)
	if err := spec.Absolute(loaded.Cluster, paths); err != nil {
		return nil, err
	}
	d := &described{Loaded: loaded, dir: dir}
	if file != "" && file != "-" {
		d.path = filepath.Join(dir, filepath.Base(file))
	}
	return d, nil
}

// loadFile reads a cluster file. A name given beside it must be its own.
func (a *app) loadFile(ctx context.Context, file, name string) (*described, error) {
	data, dir, err := a.read(ctx, file)
	if err != nil {
		return nil, err
	}
	d, err := a.load(ctx, file, data, dir)
	if err != nil {
		return nil, err
	}
	if name != "" && name != d.Cluster.Name {
		return nil, problem(idNameMismatch, "leave the name out, or name the right file", "%s describes cluster %s, not %s", called(file), d.Cluster.Name, name)
	}
	return d, nil
}

// thisHost describes a cluster of this machine alone.
func (a *app) thisHost(ctx context.Context, name, kubernetes string) (*described, error) {
	host, err := a.env.Hostname()
	if err != nil {
		return nil, refuse(fmt.Errorf("asking for the host's name: %w", err))
	}
	host = label(host)
	if name == "" {
		name = host
	}
	text, err := spec.Sample(spec.SampleOptions{
		Name: name, Kubernetes: kubernetes, File: name + ".yaml",
		Hosts: []spec.HostFlag{{
			Address: "localhost", Name: host, Roles: []v1alpha1.Role{v1alpha1.RoleControlPlane, v1alpha1.RoleWorker},
		}},
	})
	if err != nil {
		return nil, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, refuse(err)
	}
	d, err := a.load(ctx, "", text, dir)
	if err != nil {
		return nil, err
	}
	if a.env.CgroupV1() { // there is no file to allow it in
		d.Cluster.Spec.Kubernetes.Kubelet.Config = map[string]any{"failCgroupV1": false}
		a.warn(diag.List{{
			ID: idOldCgroups, Severity: diag.Warning, Message: "this machine has cgroup v1, which kubelets will stop to support",
			Hint: "boot it with cgroup v2: kernel argument systemd.unified_cgroup_hierarchy=1",
		}})
	}
	return d, nil
}

var notLabel = regexp.MustCompile(`[^a-z0-9]+`)

// label makes a DNS label of a host's name.
func label(host string) string {
	host, _, _ = strings.Cut(strings.ToLower(host), ".")
	host = notLabel.ReplaceAllString(host, "-")
	if len(host) > 63 {
		host = host[:63]
	}
	if host = strings.Trim(host, "-"); host == "" {
		return "local"
	}
	return host
}

// named refuses what cannot be a cluster's name.
func named(name string) error {
	problems := spec.NameProblems(name)
	if len(problems) == 0 {
		return nil
	}
	return problem(idName, "see the clusters: slipway get clusters", "%q cannot name a cluster: %s", name, strings.Join(problems, "; "))
}

// which answers the cluster that is meant: the one named, else the default,
// else the only one.
func (a *app) which(ctx context.Context, args []string) (string, error) {
	if len(args) > 0 {
		return args[0], named(args[0])
	}
	records, err := a.store()
	if err != nil {
		return "", err
	}
	if name, err := records.Default(); err != nil || name != "" {
		return name, refuse(err)
	}
	svc, err := a.svc(ctx)
	if err != nil {
		return "", err
	}
	list, err := svc.Clusters(ctx)
	if err != nil {
		return "", refuse(err)
	}
	switch len(list) {
	case 0:
		return "", problem(idNoCluster, "make one: slipway create cluster, or name a file with -f", "no cluster is recorded")
	case 1:
		return list[0].Name, nil
	}
	var names []string
	for _, c := range list {
		names = append(names, c.Name)
	}
	return "", problem(idWhichCluster, "name one, or choose a default: slipway use NAME", "which cluster? There are: %s", strings.Join(names, ", "))
}

// request asks for an operation on the cluster of -f, else on the one meant.
func (a *app) request(ctx context.Context, kind lifecycle.Kind, file string, args []string) (lifecycle.Request, error) {
	if file != "" {
		name := ""
		if len(args) > 0 {
			name = args[0]
		}
		d, err := a.loadFile(ctx, file, name)
		if err != nil {
			return lifecycle.Request{}, err
		}
		return a.described(kind, d), nil
	}
	name, err := a.which(ctx, args)
	if err != nil {
		return lifecycle.Request{}, err
	}
	return a.asked(lifecycle.Request{Kind: kind, Name: name}), nil
}

// chosen is the service, and the cluster that is meant.
func (a *app) chosen(ctx context.Context, args []string) (lifecycle.Service, string, error) {
	name, err := a.which(ctx, args)
	if err != nil {
		return nil, "", err
	}
	svc, err := a.svc(ctx)
	return svc, name, err
}

func (a *app) described(kind lifecycle.Kind, d *described) lifecycle.Request {
	return a.asked(lifecycle.Request{
		Kind: kind, Cluster: d.Cluster, Name: d.Cluster.Name, Source: d.Source, File: d.path, Dir: d.dir,
	})
}

// passFlags adds what is passed over when hosts are looked at.
func (a *app) passFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.ignoreErrors, "ignore-errors", false, "let the other hosts finish when one fails")
	cmd.Flags().StringArrayVar(&a.ignoreChecks, "ignore-check", nil, "pass over the precheck finding with this `id` (repeatable; recorded)")
}

// changeFlags adds what commands that change hosts pass over or break.
func (a *app) changeFlags(cmd *cobra.Command) {
	a.passFlags(cmd)
	breakFlag(cmd, &a.breakLock)
}

func breakFlag(cmd *cobra.Command, breaks *bool) {
	cmd.Flags().BoolVar(breaks, "break-lock", false, "take over a lock whose holder cannot be asked")
}

// asked adds the flags that passFlags and changeFlags made.
func (a *app) asked(r lifecycle.Request) lifecycle.Request {
	r.IgnoreChecks, r.IgnoreErrors, r.BreakLock = a.ignoreChecks, a.ignoreErrors, a.breakLock
	return r
}

// clusterNames completes the name of a cluster.
func (a *app) clusterNames(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	svc, err := a.svc(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	list, err := svc.Clusters(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, c := range list {
		names = append(names, c.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
