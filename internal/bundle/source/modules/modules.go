// Package modules builds the parts of a bundle from Go modules, with the go tool. The Go
// checksum database verifies every module, and nothing is downloaded from a release site.
// Packet filter programs, the load balancer, keepalived and their libraries come from
// Debian packages, through apt.
package modules

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/fileowner"
	"slipway.dev/slipway/internal/release"
)

// Options sets the directories of a source and the environment of the go tool.
type Options struct {
	// Cache is the directory for scratch modules and finished components.
	Cache string
	// Environ is the environment of the go tool; nil means the environment of this
	// process.
	Environ []string
	// Owner is the owner of the cache: under sudo, the caller.
	Owner *fileowner.Owner
}

// A Source compiles components from Go modules.
type Source struct {
	opts Options
	// unchecked lets a test serve modules that are not in the checksum database.
	unchecked bool
	// recipes returns the units to build; a test sets small ones.
	recipes func(release.Release) map[string]unit
	images  []image
}

// New returns a source.
func New(o Options) *Source { return &Source{opts: o, recipes: unitsOf, images: imageList()} }

// buildOrder lists the longest builds first. components lists the units for hosts.
var (
	buildOrder = []string{
		"kubernetes", "coredns", "flannel", "containerd", "etcd", "docker", "cri-dockerd", "registry",
		"crictl", "cni-plugins", "nettools", "haproxy", "keepalived", "apiserver-updater", "kube-state-metrics",
		"metrics-server", "local-path",
		"base", "probe", "pause", "echo", "conformance", "agnhost", "kitten", "sample-apiserver", "nonewprivs", "testtools", "busybox",
		"webserver",
	}
	components = []string{
		"kubernetes", "containerd", "etcd", "docker", "cri-dockerd", "registry", "crictl",
		"cni-plugins", "nettools", "conformance",
	}
)

// A runner processes one request.
type runner struct {
	source  *Source
	request source.Request
	units   map[string]unit
	tool    *goTool
	// turn is held by the job that compiles. A compilation uses all processors and
	// gigabytes of memory, so only one runs.
	turn *semaphore.Weighted

	telling sync.Mutex
}

// reportProgress reports progress, one call at a time.
func (r *runner) reportProgress(p source.Progress) {
	r.telling.Lock()
	defer r.telling.Unlock()
	r.request.ReportProgress(p)
}

func (s *Source) newRunner(ctx context.Context, r source.Request) (*runner, error) {
	tool, err := newGoTool(ctx, s.opts.Environ, s.opts.Owner.ProgramUser(s.opts.Cache), s.unchecked)
	if err != nil {
		return nil, err
	}
	all := s.recipes(r.Release)
	if !r.Docker {
		delete(all, "docker")
		delete(all, "cri-dockerd")
	}
	return &runner{source: s, request: r, units: all, tool: tool, turn: semaphore.NewWeighted(1)}, nil
}

// Probe returns an error if the go tool is missing or does not verify modules.
func (s *Source) Probe(ctx context.Context, r source.Request) error {
	_, err := s.newRunner(ctx, r)
	return err
}

// Ready reports whether all components are in the cache.
func (s *Source) Ready(ctx context.Context, r source.Request) bool {
	run, err := s.newRunner(ctx, r)
	if err != nil {
		return false
	}
	missing, err := run.missingJobs()
	return err == nil && len(missing) == 0
}

// missingJobs returns the jobs whose units are not in the cache.
func (r *runner) missingJobs() ([]*job, error) {
	var out []*job
	for _, arch := range r.request.Arches {
		for _, name := range buildOrder {
			u, ok := r.units[name]
			if !ok {
				continue
			}
			key, err := u.cacheKey(arch, r.tool.version)
			if err != nil {
				return nil, err
			}
			if j := r.newJob(u, arch, nil); !j.isCached(key) {
				out = append(out, j)
			}
		}
	}
	return out, nil
}

// checkTools finds out before anything is compiled, which takes minutes,
// whether the compilers and apt are there for all that is missing.
func (r *runner) checkTools() error {
	jobs, err := r.missingJobs()
	if err != nil {
		return err
	}
	for _, j := range jobs {
		apt := len(j.unit.Packages) > 0
		for _, m := range j.unit.Modules {
			if m.CGO {
				if _, err := findCompilers(j.arch, j.unit.Name); err != nil {
					return err
				}
			}
			apt = apt || len(m.Sysroot) > 0
		}
		if apt {
			if err := aptTools(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *runner) newJob(u unit, arch string, d *debFetcher) *job {
	return &job{
		unit: u, arch: arch, release: r.request.Release, cache: r.source.opts.Cache,
		tool: r.tool, debs: d, turn: r.turn, started: time.Now(), report: r.reportProgress,
	}
}

// Parts compiles everything that is not in the cache.
func (s *Source) Parts(ctx context.Context, req source.Request) (source.Parts, error) {
	r, err := s.newRunner(ctx, req)
	if err != nil {
		return source.Parts{}, err
	}
	if err := r.checkTools(); err != nil {
		return source.Parts{}, err
	}
	for _, path := range slices.Sorted(maps.Keys(req.Release.Modules)) {
		req.ReportProgress(source.Progress{
			Phase: source.Note,
			Message: fmt.Sprintf("Kubernetes %s is compiled with %s %s, because its own version of that module is not available",
				req.Release.Kubernetes, path, req.Release.Modules[path]),
		})
	}
	var parts source.Parts
	for _, arch := range req.Arches {
		got, err := r.buildParts(ctx, arch)
		if err != nil {
			return source.Parts{}, err
		}
		parts.Append(got)
	}
	return parts, nil
}

// ahead is how many units are worked on at once: one is compiled, while others
// are fetched, or packed.
const ahead = 3

func (r *runner) buildParts(ctx context.Context, arch string) (source.Parts, error) {
	names := slices.DeleteFunc(slices.Clone(buildOrder), func(name string) bool { _, ok := r.units[name]; return !ok })
	made := make([]built, len(names))
	d, remove, err := newDebs(r.source.opts.Cache, arch, r.tool.as)
	if err != nil {
		return source.Parts{}, err
	}
	defer func() { _ = remove() }()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(ahead)
	for i, name := range names {
		g.Go(func() (err error) {
			made[i], err = r.newJob(r.units[name], arch, d).getUnit(ctx)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return source.Parts{}, err
	}
	var parts source.Parts
	have := map[string]built{}
	for i, name := range names {
		u, b := r.units[name], made[i]
		have[name] = b
		parts.Origins = append(parts.Origins, b.Origins...)
		if slices.Contains(components, name) {
			parts.Components = append(parts.Components,
				source.Component{Name: name, Version: u.Version, Arch: arch, Licence: u.Licence, File: b.File})
		}
	}
	parts.Images, err = r.makeImages(arch, have)
	return parts, err
}

// joinLicences joins SPDX expressions, each licence once.
func joinLicences(expression string) string {
	terms := strings.Split(expression, " AND ")
	slices.Sort(terms)
	return strings.Join(slices.Compact(terms), " AND ")
}
