package recordstest

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/records"
)

// backups has backup sets as files in a directory of the test.
type backups struct{ *Process }

func (p backups) Dir(cluster string) (string, error) {
	return filepath.Join(p.m.backups, cluster), records.CheckName(cluster)
}

func (p backups) MakeDir(cluster string) (string, error) {
	dir, err := p.Dir(cluster)
	if err != nil {
		return "", err
	}
	return dir, p.use(func(*Memory) error { return os.MkdirAll(dir, 0o700) })
}

func (p backups) ListClusters(ctx context.Context) (names []string, err error) {
	err = p.useFor(ctx, func(m *Memory) error {
		entries, err := os.ReadDir(m.backups) // sorted
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return err
	})
	return names, err
}

func (p backups) AdoptKey(ctx context.Context, name string, key []byte, former string) error {
	return p.useFor(ctx, func(m *Memory) error {
		signers := m.formerSigners(name)
		if !slices.Contains(signers, former) {
			signers = append(signers, former)
		}
		m.set(clusterKey(name, fileValue(records.FormerSigners)), []byte(strings.Join(signers, "\n")+"\n"))
		m.set(clusterKey(name, fileValue(records.BackupKey)), key)
		return nil
	}, name)
}

func (p backups) LoadFormerSigners(ctx context.Context, name string) (signers []string, err error) {
	err = p.useFor(ctx, func(m *Memory) error { signers = m.formerSigners(name); return nil }, name)
	return signers, err
}

func (m *Memory) formerSigners(cluster string) []string {
	return strings.Fields(string(m.values[clusterKey(cluster, fileValue(records.FormerSigners))]))
}
