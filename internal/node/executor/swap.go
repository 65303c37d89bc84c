//go:build linux

package executor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// swapOffOp executes op.SwapOff.
type swapOffOp struct{ o op.SwapOff }

func (*swapOffOp) Check(ctx context.Context, s *session) (verdict, error) {
	return s.checkSwap(ctx)
}

func (*swapOffOp) Apply(ctx context.Context, s *session, _ *op.Result) error {
	return s.applySwap(ctx)
}

const (
	fstab = "/etc/fstab"
	// swapMark marks the lines of fstab that Slipway disabled.
	swapMark = "#slipway-swap-off# "
)

// swapMakers are services that create swap at boot, on compressed memory or files,
// without a line in fstab and a unit of type swap.
var swapMakers = []string{"zramswap.service", "zram-config.service", "zram-swap.service", "dphys-swapfile.service"}

// swapArea is one line of /proc/swaps.
type swapArea struct {
	Device   string `json:"device"`
	Priority int    `json:"priority"`
}

// parseSwaps reads /proc/swaps.
func parseSwaps(raw []byte) []swapArea {
	var out []swapArea
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) < 5 || f[0] == "Filename" {
			continue
		}
		priority, err := strconv.Atoi(f[4])
		if err != nil {
			continue
		}
		out = append(out, swapArea{Device: unescapeProc(f[0]), Priority: priority})
	}
	return out
}

// unescapeProc decodes the kernel's octal escape of spaces in paths.
func unescapeProc(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// withoutSwap comments out the swap lines of an fstab, or restores them.
func withoutSwap(raw []byte) []byte {
	var out bytes.Buffer
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) >= 3 && f[0][0] != '#' && f[2] == "swap" {
			out.WriteString(swapMark)
		}
		out.WriteString(line)
	}
	return out.Bytes()
}

func withSwap(raw []byte) []byte {
	var out bytes.Buffer
	for line := range strings.Lines(string(raw)) {
		out.WriteString(strings.TrimPrefix(line, swapMark))
	}
	return out.Bytes()
}

// swapState has everything that creates swap on this host.
type swapState struct {
	active []swapArea
	fstab  []byte
	off    []byte // fstab without swap lines
	units  []string
	makers []string
}

func (s *session) swapState(ctx context.Context) (swapState, error) {
	var st swapState
	raw, err := bounded.ReadFile(s.path("/proc/swaps"), bounded.Proc)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a kernel without swap
		return st, fmt.Errorf("reading the active swap: %w", err)
	}
	st.active = parseSwaps(raw)
	if st.fstab, err = s.read(fstab); err != nil {
		return st, err
	}
	st.off = withoutSwap(st.fstab)
	all, err := s.swapUnits(ctx)
	if err != nil {
		return st, err
	}
	for _, name := range swapMakers {
		if s.hasUnitFile(name) {
			all.makers = append(all.makers, name)
		}
	}
	for _, name := range all.makers {
		u, err := s.unit(ctx, name)
		if err != nil {
			return st, err
		}
		if u.running() || strings.HasPrefix(u.enablement, "enabled") {
			st.makers = append(st.makers, name)
		}
	}
	st.units = all.masks
	return st, nil
}

// swapMakerUnits returns units that create swap: some can be masked, the others, whose
// file is at the path of a mask, would be disabled.
type swapMakerUnits struct{ masks, makers []string }

// swapUnits returns the units of type swap that would start at boot although fstab does
// not name them: written by hand, found in a partition table, or created by a generator
// for compressed memory.
func (s *session) swapUnits(ctx context.Context) (swapMakerUnits, error) {
	var units swapMakerUnits
	out, err := s.output(ctx, "systemctl", "list-units", "--type=swap", "--all", "--plain", "--no-legend", "--no-pager")
	if err != nil {
		return units, fmt.Errorf("listing swap units: %w", err)
	}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < 4 || f[1] == "masked" || f[1] == "not-found" {
			continue
		}
		p, err := s.output(ctx, "systemctl", "show", "--property=SourcePath,FragmentPath,Following", "--", f[0])
		if err != nil {
			return units, fmt.Errorf("querying swap unit %s: %w", f[0], err)
		}
		props := properties(p)
		file := props["FragmentPath"]
		switch {
		// A unit without a file only reflects the kernel; one that follows is another
		// name of the same unit.
		case file == "" || props["SourcePath"] == fstab || props["Following"] != "":
		case strings.HasPrefix(file, "/etc/systemd/system/"):
			units.makers = append(units.makers, f[0])
		default:
			units.masks = append(units.masks, f[0])
		}
	}
	return units, nil
}

func (s *session) checkSwap(ctx context.Context) (verdict, error) {
	st, err := s.swapState(ctx)
	if err != nil {
		return verdict{}, err
	}
	var changes []string
	for _, a := range st.active {
		changes = append(changes, "turn off swap on "+a.Device)
	}
	v := verdict{diff: unified(fstab, fstab, st.fstab, st.off)}
	if !bytes.Equal(st.fstab, st.off) {
		changes = append(changes, "remove swap from "+fstab)
	}
	for _, u := range st.units {
		changes = append(changes, "mask "+u)
	}
	for _, u := range st.makers {
		changes = append(changes, "disable "+u)
	}
	v.change = strings.Join(changes, ", ")
	return v, nil
}

// swapWas is the data of the ledger entry.
type swapWas struct {
	Active []swapArea `json:"active,omitempty"`
	Fstab  foreign    `json:"fstab"`
}

func (s *session) applySwap(ctx context.Context) error {
	st, err := s.swapState(ctx)
	if err != nil {
		return err
	}
	was := swapWas{Active: st.active}
	if was.Fstab, err = s.foreign(fstab); err != nil {
		return err
	}
	if err := s.ledger.Save(ledger.KindSwap, "swap", was); err != nil {
		return err
	}
	// First what would activate it again, so that a crash in between does not leave swap
	// for the next boot.
	for _, name := range st.makers {
		if err := s.applyUnit(ctx, op.Unit{Name: name, Enabled: op.Bool(false), Running: op.Bool(false)}); err != nil {
			return err
		}
	}
	for _, name := range st.units {
		if err := s.applyUnit(ctx, op.Unit{Name: name, Masked: true}); err != nil {
			return err
		}
	}
	if !bytes.Equal(st.fstab, st.off) {
		if err := s.rewrite(fstab, st.off); err != nil {
			return err
		}
		if err := s.systemctl(ctx, "daemon-reload"); err != nil {
			return err
		}
	}
	raw, err := bounded.ReadFile(s.path("/proc/swaps"), bounded.Proc)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the active swap: %w", err)
	}
	for _, a := range parseSwaps(raw) {
		if _, err := s.output(ctx, "swapoff", "--", a.Device); err != nil {
			return err
		}
	}
	return nil
}

// restoreSwap restores the lines of fstab and turns on swap that was on. A missing area
// is reported, but is not an error.
func (s *session) restoreSwap(ctx context.Context, e *ledger.Entry) (string, error) {
	var was swapWas
	if err := e.Decode(&was); err != nil {
		return "", err
	}
	now, err := s.read(fstab)
	if err != nil {
		return "", err
	}
	if err := s.restoreForeign(was.Fstab, now, withSwap(now)); err != nil {
		return "", err
	}
	raw, err := bounded.ReadFile(s.path("/proc/swaps"), bounded.Proc)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading the active swap: %w", err)
	}
	on := map[string]bool{}
	for _, a := range parseSwaps(raw) {
		on[a.Device] = true
	}
	var did []string
	for _, a := range was.Active {
		if on[a.Device] {
			continue
		}
		argv := []string{"swapon"}
		if a.Priority >= 0 { // negative ones are the kernel's choice
			argv = append(argv, "--priority", strconv.Itoa(a.Priority))
		}
		if _, err := s.output(ctx, append(argv, "--", a.Device)...); err != nil {
			did = append(did, fmt.Sprintf("could not turn on swap on %s: %v", a.Device, err))
			continue
		}
		did = append(did, "on "+a.Device)
	}
	return strings.Join(did, ", "), nil
}
