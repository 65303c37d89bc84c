//go:build linux

package certs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/hostfs"
	"slipway.dev/slipway/internal/node/executor/systemctl"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

// InspectCertificatesOp executes op.InspectCertificates.
type InspectCertificatesOp struct{ Op op.InspectCertificates }

func (x *InspectCertificatesOp) Paths() []string {
	var paths []string
	for _, f := range x.Op.Files {
		paths = append(paths, host.NonEmpty(f.Path, f.Key, f.CA)...)
	}
	return paths
}

// RenewCertificateOp executes op.RenewCertificate.
type RenewCertificateOp struct{ Op op.RenewCertificate }

func (x *RenewCertificateOp) Paths() []string {
	return host.NonEmpty(x.Op.Path, x.Op.Key, x.Op.CA, x.Op.CAKey)
}

// Check returns the state of certificates on the host.
func (x *InspectCertificatesOp) Check(_ context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	states := make([]op.CertificateState, len(o.Files))
	for i, f := range o.Files {
		states[i] = pki.ReadState(h.ReadFile, f)
	}
	raw, err := json.Marshal(states)
	return host.CheckResult{Output: raw}, err
}

func (x *RenewCertificateOp) Check(ctx context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	if err := checkRenewalOp(o); err != nil {
		return host.CheckResult{}, err
	}
	var v host.CheckResult
	var err error
	if _, will := h.Predicted[o.CA]; will && o.Due == op.DueForeign {
		v.Change, v.Wrote = "sign: its CA is being rotated", map[string]string{o.Path: ""}
		return v, nil
	}
	if v.Change, err = pki.RenewalReason(h.ReadFile, o, time.Now()); err != nil {
		return v, err
	}
	if v.Change != "" {
		v.Wrote = map[string]string{o.Path: ""} // not known before
		return v, nil
	}
	// An earlier run that was interrupted after the renewal has left the unit stopped.
	if o.Unit == "" || o.LeaveStopped || !host.Exists(h.DiskPath(o.Path)) && !o.Remade {
		return v, nil
	}
	u, err := systemctl.ShowUnit(ctx, h, o.Unit)
	if err == nil && u.Load == "loaded" && !u.IsRunning() {
		v.Change = "start " + o.Unit
	}
	return v, err
}

func checkRenewalOp(o op.RenewCertificate) error {
	if o.Unit != "" {
		if err := systemctl.CheckUnitName(o.Unit); err != nil {
			return err
		}
	}
	switch {
	case o.Remade && o.Unit == "":
		return host.Invalid("%s cannot be renewed", o.Path)
	case !o.Remade && (o.CA == "" || o.CAKey == ""):
		return host.Invalid("no CA is known that signs %s", o.Path)
	case o.ValiditySeconds <= 0:
		return host.Invalid("the validity of %s would be zero", o.Path)
	}
	return nil
}

func (x *RenewCertificateOp) Apply(ctx context.Context, h *host.Host, _ *op.Result) error {
	o := x.Op
	now := time.Now()
	due, err := pki.RenewalReason(h.ReadFile, o, now)
	if err != nil {
		return err
	}
	if o.LeaveStopped && o.Unit != "" {
		u, err := systemctl.ShowUnit(ctx, h, o.Unit)
		if err != nil {
			return err
		}
		if !u.IsRunning() {
			o.Unit = ""
		}
	}
	if due != "" && o.Unit != "" {
		if err := systemctl.RunSystemctl(ctx, h, "stop", "--", o.Unit); err != nil {
			return err
		}
	}

	if due != "" {
		err = renewFiles(h, o, now)
	}
	if o.Unit == "" {
		return err
	}
	err = errors.Join(err, startsWithFile(h, o))
	// It was stopped for the renewal, and is started again whatever the result.
	again, cancel := context.WithTimeout(context.WithoutCancel(ctx), restartTime)
	defer cancel()
	return errors.Join(err, systemctl.RunSystemctl(again, h, "start", "--", o.Unit))
}

// startsWithFile records that the unit was started with the current certificate.
func startsWithFile(h *host.Host, o op.RenewCertificate) error {
	rec, err := systemctl.ReadUnitRecord(h, o.Unit)
	if _, known := rec.Files[o.Path]; err != nil || !known {
		return err
	}
	if rec.Files[o.Path], err = h.StateOf(o.Path); err != nil {
		return err
	}
	return h.WriteRecord(h.StatePath("units", o.Unit+".json"), rec)
}

// restartTime limits the start of a unit that was stopped.
const restartTime = 2 * time.Minute

// renewFiles writes the new files, or removes the files that the unit creates again.
func renewFiles(h *host.Host, o op.RenewCertificate, now time.Time) error {
	if o.Remade {
		for _, p := range host.NonEmpty(o.Key, o.Path) {
			if err := hostfs.ApplyAbsent(h, op.Absent{Path: p}); err != nil {
				return err
			}
		}
		return nil
	}
	files, err := pki.RenewCertificate(h.ReadFile, o, now)
	if err != nil {
		return err
	}
	for _, f := range files {
		path, err := resolveKubeletLink(h, f.Path)
		if err != nil {
			return err
		}
		if _, err := os.Lstat(h.DiskPath(path)); errors.Is(err, fs.ErrNotExist) && f.Secret {
			err = hostfs.WriteFile(h, path, f.Content, atomicfile.Meta{Mode: 0o600})
			if err != nil {
				return err
			}
			continue
		}
		if err := hostfs.EditFile(h, path, f.Content); err != nil {
			return err
		}
	}
	return nil
}

// resolveKubeletLink returns the target of a link on the host, or the file itself: the
// kubelet needs its link to remain a link.
func resolveKubeletLink(h *host.Host, path string) (string, error) {
	info, err := os.Lstat(h.DiskPath(path))
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode()&fs.ModeSymlink == 0 {
		return path, nil
	}
	if err != nil {
		return "", err
	}
	to, err := os.Readlink(h.DiskPath(path))
	if err != nil {
		return "", fmt.Errorf("reading where %s leads: %w", path, err)
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(filepath.Dir(path), to)
	}
	return filepath.Clean(to), nil
}
