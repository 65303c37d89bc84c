//go:build linux

package executor

import (
	"context"
	"strings"

	"slipway.dev/slipway/internal/node/atomicfile"
	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// timeSyncOp executes op.TimeSync.
type timeSyncOp struct{ o op.TimeSync }

func (*timeSyncOp) LedgerEntries() ([]subject, bool) {
	var out []subject
	for _, t := range timeServices() {
		out = append(out, subject{ledger.KindUnit, t.unit}, subject{ledger.KindPath, t.conf},
			subject{ledger.KindBlock, t.block(nil).Target()})
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

// timeService finds the host's time service.
func (s *session) timeService() (timeService, error) {
	for _, t := range timeServices() {
		if s.hasUnitFile(t.unit) && (t.ours || exists(s.path(t.conf))) {
			return t, nil
		}
	}
	return timeService{}, &op.Error{Reason: "NoTimeService",
		Message: "this host has no supported time service: install systemd-timesyncd or chrony"}
}

func (s *session) hasUnitFile(name string) bool {
	for _, dir := range []string{"/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"} {
		if exists(s.path(dir + "/" + name)) {
			return true
		}
	}
	return false
}

func (t timeService) file(servers []string) op.File {
	return op.File{Path: t.conf, Content: []byte("[Time]\nNTP=" + strings.Join(servers, " ") + "\n")}
}

func (t timeService) block(servers []string) op.Block {
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
func (x *timeSyncOp) Check(ctx context.Context, s *session) (verdict, error) {
	o := x.o
	for _, name := range o.Servers {
		if name == "" || strings.ContainsAny(name, " \t\r\n#") {
			return verdict{}, invalid("%q is not a time server", name)
		}
	}
	t, err := s.timeService()
	if err != nil {
		return verdict{}, err
	}
	v, err := s.checkTimeConf(t, o.Servers)
	if err != nil {
		return v, err
	}
	var changes []string
	if v.change != "" {
		changes = append(changes, t.conf+": "+v.change)
	}
	p, err := s.planUnit(ctx, t.asUnit())
	if err != nil {
		return v, err
	}
	stale, err := s.stale(t.asUnit(), p.now)
	if err != nil {
		return v, err
	}
	if p.start && !p.now.condition && len(stale) == 0 {
		p.why = without(p.why, "start")
	}
	if len(p.why) > 0 {
		changes = append(changes, t.unit+": "+strings.Join(p.why, ", "))
	}
	v.change = strings.Join(changes, "; ")
	return v, nil
}

func (s *session) checkTimeConf(t timeService, servers []string) (verdict, error) {
	if t.ours {
		return s.checkFile(t.file(servers))
	}
	return s.checkBlock(t.block(servers))
}

func without(list []string, s string) []string {
	var out []string
	for _, e := range list {
		if e != s {
			out = append(out, e)
		}
	}
	return out
}

func (x *timeSyncOp) Apply(ctx context.Context, s *session, _ *op.Result) error {
	o := x.o
	t, err := s.timeService()
	if err != nil {
		return err
	}
	v, err := s.checkTimeConf(t, o.Servers)
	if err != nil {
		return err
	}
	switch {
	case v.change == "":
	case t.ours:
		err = s.write(t.conf, t.file(o.Servers).Content, atomicfile.Meta{Mode: 0o644})
	default:
		err = s.applyBlock(ctx, t.block(o.Servers))
	}
	if err != nil {
		return err
	}
	return s.applyUnit(ctx, t.asUnit())
}
