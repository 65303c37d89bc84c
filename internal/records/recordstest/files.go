package recordstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/privatedir"
	"slipway.dev/slipway/internal/records"
)

const knownHosts = "known_hosts"

// files are copies in a private directory.
type files struct {
	p     *Process
	dir   *privatedir.Dir
	given []byte // the host keys at the beginning
	close func() error
}

// Files returns the records as files. The test closes them if the caller does not.
func (p *Process) Files(ctx context.Context) (records.Files, error) {
	dir, err := privatedir.Create(0, p.m.base)
	if err != nil {
		return nil, err
	}
	p.m.t.Cleanup(func() { _ = dir.Close() })
	f := &files{p: p, dir: dir}
	f.close = sync.OnceValue(func() error { return errors.Join(f.saveKnownHosts(), dir.Close()) })
	err = p.useFor(ctx, func(m *Memory) error { f.given = bytes.Clone(m.values[knownHosts]); return nil })
	if err == nil {
		err = dir.WriteFile(knownHosts, f.given)
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return f, nil
}

func (f *files) path(name string) string { return filepath.Join(f.dir.Path(), name) }

func (f *files) KnownHosts() string { return f.path(knownHosts) }

// saveKnownHosts saves the lines that were appended.
func (f *files) saveKnownHosts() error {
	text, err := f.dir.ReadFile(knownHosts, bounded.Record)
	if err != nil {
		return err
	}
	added, appended := bytes.CutPrefix(text, f.given)
	if !appended {
		return errors.New("host keys were changed or removed")
	}
	return f.p.use(func(m *Memory) error { m.set(knownHosts, append(m.values[knownHosts], added...)); return nil })
}

func (f *files) Kubeconfig(ctx context.Context, cluster string, content []byte) (path string, release func(), err error) {
	if err := f.p.useFor(ctx, func(*Memory) error { return nil }, cluster); err != nil {
		return "", nil, err
	}
	if _, err := kubeconfig.ParseAdmin(content); err != nil {
		return "", nil, fmt.Errorf("writing a kubeconfig of cluster %s: %w", cluster, err)
	}
	name := cluster + ".kubeconfig-" + randomHex(8)
	return f.path(name), func() { _ = os.Remove(f.path(name)) }, f.dir.WriteFile(name, content)
}

func (f *files) ClusterFile(ctx context.Context, cluster, file string) (string, error) {
	text, err := f.p.load(ctx, cluster, fileValue(file))
	path := f.path(cluster + "." + file)
	if errors.Is(err, records.ErrNotFound) {
		if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return path, err
	}
	temp := cluster + ".file-" + randomHex(8)
	if err == nil {
		err = f.dir.WriteFile(temp, text)
	}
	if err == nil {
		err = os.Rename(f.path(temp), path)
	}
	return path, err
}

func (f *files) TempDir() string { return f.p.m.temp }

func (f *files) Close() error { return f.close() }
