package modules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"golang.org/x/sync/semaphore"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/bundle/pack"
	"slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/safefile"
)

// built holds a built unit in the cache.
type built struct {
	File    pack.File       `json:"file"`
	Origins []source.Origin `json:"origins"`
}

// A job builds one unit for one architecture.
type job struct {
	unit    unit
	arch    string
	release release.Release
	cache   string
	tool    *goTool
	debs    *debFetcher
	turn    *semaphore.Weighted
	scratch string
	origins []source.Origin
	started time.Time
	report  func(source.Progress)
}

func (j *job) label() string { return j.unit.Name + " " + j.unit.Version + " linux/" + j.arch }

func (j *job) reportProgress(p source.Progress) {
	p.Component = j.label()
	p.Elapsed = time.Since(j.started)
	j.report(p)
}

func (j *job) cacheDir(key string) string {
	return filepath.Join(j.cache, "components", j.unit.Name+"-"+key[:16])
}

// loadCached finds the unit in the cache and verifies it. A damaged unit counts as
// missing.
func (j *job) loadCached(key string) (built, bool) {
	var b built
	data, err := safefile.ReadFile(filepath.Join(j.cacheDir(key), "component.json"), bounded.Record)
	if err != nil || json.Unmarshal(data, &b) != nil {
		return built{}, false
	}
	b.File.Path = filepath.Join(j.cacheDir(key), j.unit.Name+".tar.gz")
	digest, err := hashFile(b.File.Path)
	return b, err == nil && digest == b.File.Digest
}

// isCached reports whether the unit is in the cache, by its size only.
func (j *job) isCached(key string) bool {
	var b built
	data, err := safefile.ReadFile(filepath.Join(j.cacheDir(key), "component.json"), bounded.Record)
	if err != nil || json.Unmarshal(data, &b) != nil {
		return false
	}
	fi, err := safefile.Stat(filepath.Join(j.cacheDir(key), j.unit.Name+".tar.gz"))
	return err == nil && fi.Size() == b.File.Size
}

// getUnit returns the unit from the cache, or builds and caches it.
func (j *job) getUnit(ctx context.Context) (built, error) {
	key, err := j.unit.cacheKey(j.arch, j.tool.version)
	if err != nil {
		return built{}, err
	}
	if b, ok := j.loadCached(key); ok {
		j.reportProgress(source.Progress{Phase: source.Cached})
		return b, nil
	}
	j.scratch = filepath.Join(j.cache, "modules", j.unit.Name+"-"+key[:16])
	if err := safefile.MkdirAll(filepath.Dir(j.scratch), 0o755); err != nil {
		return built{}, err
	}
	unlock, err := j.lockUnit(ctx)
	if err != nil {
		return built{}, fmt.Errorf("locking the build of %s: %w", j.label(), err)
	}
	defer unlock()
	if b, ok := j.loadCached(key); ok { // another process has built it meanwhile
		j.reportProgress(source.Progress{Phase: source.Cached})
		return b, nil
	}
	b, err := j.buildUnit(ctx, key)
	if err != nil {
		return built{}, err
	}
	j.reportProgress(source.Progress{Phase: source.Done, Done: b.File.Size, Total: b.File.Size, Unit: "bytes"})
	return b, safefile.RemoveAll(j.scratch)
}

// lockUnit prevents two processes from building the same unit concurrently.
func (j *job) lockUnit(ctx context.Context) (unlock func(), err error) {
	f, err := safefile.Lock(ctx, j.scratch+".lock", func() {
		j.reportProgress(source.Progress{Phase: source.Compiling, Message: "waiting for another process that builds the same bundle"})
	})
	if err != nil {
		return nil, err
	}
	return func() { f.Close() }, nil
}

func (j *job) buildUnit(ctx context.Context, key string) (built, error) {
	// The remains of an interrupted build are useless: the go tool keeps compiled and
	// fetched files in its own caches.
	if err := safefile.RemoveAll(j.scratch); err != nil {
		return built{}, err
	}
	if err := j.tool.as.MakeDir(j.scratch, 0o755); err != nil {
		return built{}, err
	}
	members, err := j.makeMembers(ctx)
	if err != nil {
		return built{}, err
	}
	for name, to := range j.unit.Links {
		members = append(members, pack.Member{Name: name, Link: to})
	}
	for name, text := range j.unit.Content {
		members = append(members, pack.Member{Name: name, Content: []byte(text), Mode: 0o644})
	}
	j.reportProgress(source.Progress{Phase: source.Packing})
	out := filepath.Join(j.scratch, "packed")
	if err := safefile.MkdirAll(out, 0o755); err != nil {
		return built{}, err
	}
	file, err := pack.Write(ctx, filepath.Join(out, j.unit.Name+".tar.gz"), members)
	if err != nil {
		return built{}, err
	}
	b := built{File: file, Origins: j.origins}
	data, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return built{}, err
	}
	if err := safefile.WriteFile(filepath.Join(out, "component.json"), data, 0o644); err != nil {
		return built{}, err
	}
	b.File.Path = filepath.Join(j.cacheDir(key), j.unit.Name+".tar.gz")
	return b, replaceDir(out, j.cacheDir(key))
}

// makeMembers builds or unpacks the members of the unit.
func (j *job) makeMembers(ctx context.Context) ([]pack.Member, error) {
	var members []pack.Member
	for i, m := range j.unit.Modules {
		got, origins, err := j.compileModule(ctx, i, m)
		if err != nil {
			return nil, err
		}
		members = append(members, got...)
		j.origins = append(j.origins, origins...)
	}
	if err := j.askPrograms(ctx, members); err != nil {
		return nil, err
	}
	if len(j.unit.Packages) == 0 {
		return members, nil
	}
	tree, err := j.debs.unpackPackages(ctx, j.unit.Packages, filepath.Join(j.scratch, "root"), j.reportProgress)
	if err != nil {
		return nil, err
	}
	got, err := tree.pickMembers(j.unit, j.arch)
	j.origins = append(j.origins, tree.usedOrigins(j.unit.Name)...)
	return append(members, got...), err
}

// replaceDir moves a directory into place. An existing directory there is damaged, and is
// removed.
func replaceDir(from, to string) error {
	if err := safefile.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := safefile.RemoveAll(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return safefile.RenameSynced(from, to)
}
