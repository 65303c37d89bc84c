//go:build linux

package executor

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
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

// certificatesOp executes op.Certificates.
type certificatesOp struct{ o op.Certificates }

func (x *certificatesOp) Paths() []string {
	var paths []string
	for _, f := range x.o.Files {
		paths = append(paths, named(f.Path, f.Key, f.CA)...)
	}
	return paths
}

// renewalOp executes op.Renewal.
type renewalOp struct{ o op.Renewal }

func (x *renewalOp) Paths() []string {
	return named(x.o.Path, x.o.Key, x.o.CA, x.o.CAKey)
}

// Check returns the state of certificates on the host.
func (x *certificatesOp) Check(_ context.Context, s *session) (verdict, error) {
	o := x.o
	states := make([]op.CertificateState, len(o.Files))
	for i, f := range o.Files {
		states[i] = pki.State(s.read, f)
	}
	raw, err := json.Marshal(states)
	return verdict{output: raw}, err
}

func (x *renewalOp) Check(ctx context.Context, s *session) (verdict, error) {
	o := x.o
	if err := checkRenewalOp(o); err != nil {
		return verdict{}, err
	}
	var v verdict
	var err error
	if _, will := s.predicted[o.CA]; will && o.Due == op.DueForeign {
		v.change, v.wrote = "sign: its CA is being rotated", map[string]string{o.Path: ""}
		return v, nil
	}
	if v.change, err = pki.Due(s.read, o, time.Now()); err != nil {
		return v, err
	}
	if v.change != "" {
		v.wrote = map[string]string{o.Path: ""} // not known before
		return v, nil
	}
	// An earlier run that was interrupted after the renewal has left the unit stopped.
	if o.Unit == "" || o.LeaveStopped || !exists(s.path(o.Path)) && !o.Remade {
		return v, nil
	}
	u, err := s.unit(ctx, o.Unit)
	if err == nil && u.load == "loaded" && !u.running() {
		v.change = "start " + o.Unit
	}
	return v, err
}

func checkRenewalOp(o op.Renewal) error {
	if o.Unit != "" {
		if err := checkUnitName(o.Unit); err != nil {
			return err
		}
	}
	switch {
	case o.Remade && o.Unit == "":
		return invalid("%s cannot be renewed", o.Path)
	case !o.Remade && (o.CA == "" || o.CAKey == ""):
		return invalid("no CA is known that signs %s", o.Path)
	case o.ValiditySeconds <= 0:
		return invalid("the validity of %s would be zero", o.Path)
	}
	return nil
}

func (x *renewalOp) Apply(ctx context.Context, s *session, _ *op.Result) error {
	o := x.o
	now := time.Now()
	due, err := pki.Due(s.read, o, now)
	if err != nil {
		return err
	}
	if o.LeaveStopped && o.Unit != "" {
		u, err := s.unit(ctx, o.Unit)
		if err != nil {
			return err
		}
		if !u.running() {
			o.Unit = ""
		}
	}
	if due != "" && o.Unit != "" {
		if err := s.systemctl(ctx, "stop", "--", o.Unit); err != nil {
			return err
		}
	}

	if due != "" {
		err = s.renew(o, now)
	}
	if o.Unit == "" {
		return err
	}
	err = errors.Join(err, s.startsWith(o))
	// It was stopped for the renewal, and is started again whatever the result.
	again, cancel := context.WithTimeout(context.WithoutCancel(ctx), restartTime)
	defer cancel()
	return errors.Join(err, s.systemctl(again, "start", "--", o.Unit))
}

// startsWith records that the unit was started with the current certificate.
func (s *session) startsWith(o op.Renewal) error {
	rec, err := s.unitRecord(o.Unit)
	if _, known := rec.Files[o.Path]; err != nil || !known {
		return err
	}
	if rec.Files[o.Path], err = s.stateOf(o.Path); err != nil {
		return err
	}
	return s.keep(s.state("units", o.Unit+".json"), rec)
}

// restartTime limits the start of a unit that was stopped.
const restartTime = 2 * time.Minute

// renew writes the new files, or removes the files that the unit creates again.
func (s *session) renew(o op.Renewal, now time.Time) error {
	if o.Remade {
		for _, p := range named(o.Key, o.Path) {
			if err := s.applyAbsent(op.Absent{Path: p}); err != nil {
				return err
			}
		}
		return nil
	}
	files, err := pki.Renew(s.read, o, now)
	if err != nil {
		return err
	}
	for _, f := range files {
		path, err := s.linked(f.Path)
		if err != nil {
			return err
		}
		if _, err := os.Lstat(s.path(path)); errors.Is(err, fs.ErrNotExist) && f.Secret {
			err = s.write(path, f.Content, atomicfile.Meta{Mode: 0o600})
			if err != nil {
				return err
			}
			continue
		}
		if err := s.edit(path, f.Content); err != nil {
			return err
		}
	}
	return nil
}

// linked returns the target of a link on the host, or the file itself: the kubelet needs
// its link to remain a link.
func (s *session) linked(path string) (string, error) {
	info, err := os.Lstat(s.path(path))
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode()&fs.ModeSymlink == 0 {
		return path, nil
	}
	if err != nil {
		return "", err
	}
	to, err := os.Readlink(s.path(path))
	if err != nil {
		return "", fmt.Errorf("reading where %s leads: %w", path, err)
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(filepath.Dir(path), to)
	}
	return filepath.Clean(to), nil
}

// valid returns an error unless a file has a certificate that has not expired.
func (s *session) valid(path string) error {
	st := pki.State(s.read, op.CertificateFile{Path: path})
	switch {
	case st.Missing:
		return fmt.Errorf("%s is missing", path)
	case st.Problem != "":
		return fmt.Errorf("reading %s: %s", path, st.Problem)
	case time.Now().After(st.Ends):
		return fmt.Errorf("the certificate in %s expired on %s", path, st.Ends.Format(time.RFC3339))
	}
	return nil
}
