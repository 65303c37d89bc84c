//go:build linux

package system

import (
	"context"
	"strings"

	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/executor/hostfs"
	"slipway.dev/slipway/internal/node/executor/systemctl"
	"slipway.dev/slipway/internal/node/executor/systemd"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// TimeSyncOp executes op.TimeSync.
type TimeSyncOp struct{ Op op.TimeSync }

func (*TimeSyncOp) LedgerEntries() ([]host.Subject, bool) {
	var out []host.Subject
	for _, t := range timeServices() {
		out = append(out, host.Subject{Kind: ledger.KindUnit, Key: t.unit}, host.Subject{Kind: ledger.KindPath, Key: t.conf},
			host.Subject{Kind: ledger.KindBlock, Key: t.confBlock(nil).Target()})
	}
	return out, true
}

const (
	timesyncdUnit   = "systemd-timesyncd.service"
	timesyncdDropIn = "/etc/systemd/timesyncd.conf.d/50-slipway.conf"
	chronyBlock     = "time"
)

// timeService is a service that sets the clock of a host, and the way to make it use
// Slipway's servers.
type timeService struct {
	unit string
	conf string // the file with Slipway's lines
	ours bool   // the file belongs only to Slipway
}

// timeServices lists the supported services. A host with chrony uses it: an installed
// chrony was chosen by the user.
func timeServices() []timeService {
	return []timeService{
		{unit: "chrony.service", conf: "/etc/chrony/chrony.conf"},
		{unit: "chronyd.service", conf: "/etc/chrony.conf"},
		{unit: timesyncdUnit, conf: timesyncdDropIn, ours: true},
	}
}

// findTimeService finds the host's time service.
func findTimeService(h *host.Host) (timeService, error) {
	for _, t := range timeServices() {
		if systemctl.HasUnitFile(h, t.unit) && (t.ours || host.Exists(h.DiskPath(t.conf))) {
			return t, nil
		}
	}
	return timeService{}, &op.Error{
		Reason:  "NoTimeService",
		Message: "this host has no supported time service: install systemd-timesyncd or chrony",
	}
}

func (t timeService) confFile(servers []string) op.File {
	return op.File{Path: t.conf, Content: []byte("[Time]\nNTP=" + strings.Join(servers, " ") + "\n")}
}

func (t timeService) confBlock(servers []string) op.Block {
	lines := make([]string, len(servers))
	for i, name := range servers {
		lines[i] = "server " + name + " iburst"
	}
	return op.Block{Path: t.conf, Name: chronyBlock, Lines: lines}
}

func (t timeService) asUnit() op.Unit {
	return op.Unit{Name: t.unit, Enabled: op.Bool(true), Running: op.Bool(true), RestartOn: []string{t.conf}}
}

// Check checks the configuration, and whether the service was started with it.
// systemd keeps it running: on a host that cannot set its clock, its conditions prevent
// its start.
func (x *TimeSyncOp) Check(ctx context.Context, h *host.Host) (host.CheckResult, error) {
	o := x.Op
	for _, name := range o.Servers {
		if name == "" || strings.ContainsAny(name, " \t\r\n#") {
			return host.CheckResult{}, host.Invalid("%q is not a time server", name)
		}
	}
	t, err := findTimeService(h)
	if err != nil {
		return host.CheckResult{}, err
	}
	v, err := checkTimeConf(h, t, o.Servers)
	if err != nil {
		return v, err
	}
	var changes []string
	if v.Change != "" {
		changes = append(changes, t.conf+": "+v.Change)
	}
	p, err := systemd.PlanUnit(ctx, h, t.asUnit())
	if err != nil {
		return v, err
	}
	stale, err := systemd.StaleFiles(h, t.asUnit(), p.Now)
	if err != nil {
		return v, err
	}
	if p.Start && !p.Now.Condition && len(stale) == 0 {
		p.Why = withoutLine(p.Why, "start")
	}
	if len(p.Why) > 0 {
		changes = append(changes, t.unit+": "+strings.Join(p.Why, ", "))
	}
	v.Change = strings.Join(changes, "; ")
	return v, nil
}

func checkTimeConf(h *host.Host, t timeService, servers []string) (host.CheckResult, error) {
	if t.ours {
		return hostfs.CheckFile(h, t.confFile(servers))
	}
	return hostfs.CheckBlock(h, t.confBlock(servers))
}

func withoutLine(list []string, s string) []string {
	var out []string
	for _, e := range list {
		if e != s {
			out = append(out, e)
		}
	}
	return out
}

func (x *TimeSyncOp) Apply(ctx context.Context, h *host.Host, _ *op.Result) error {
	o := x.Op
	t, err := findTimeService(h)
	if err != nil {
		return err
	}
	v, err := checkTimeConf(h, t, o.Servers)
	if err != nil {
		return err
	}
	switch {
	case v.Change == "":
	case t.ours:
		err = hostfs.WriteFile(h, t.conf, t.confFile(o.Servers).Content, atomicfile.Meta{Mode: 0o644})
	default:
		err = hostfs.ApplyBlock(ctx, h, t.confBlock(o.Servers))
	}
	if err != nil {
		return err
	}
	return systemd.ApplyUnit(ctx, h, t.asUnit())
}
