//go:build linux

package executor

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/node/ledger"
	"slipway.dev/slipway/internal/node/op"
)

// verdict is the result of a check.
type verdict struct {
	// change describes the change in one line; "" if there is none.
	change string
	diff   string
	output []byte
	// missing and secret are as in op.Result.
	missing, secret bool
	// wrote has the resulting states of paths.
	wrote map[string]string
}

// check sets the status and evidence of a result.
func (s *session) check(ctx context.Context, o op.Op, res *op.Result) {
	v, err := s.look(ctx, o)
	if err != nil {
		res.Status, res.Error = op.Failed, failure(fmt.Errorf("checking %s %s: %w", o.Kind(), o.Target(), err))
		return
	}
	res.Status = op.Unchanged
	if v.change != "" {
		res.Status = op.Changed
	}
	res.Summary, res.Diff = v.change, v.diff
	res.Output, res.Missing, res.Secret = v.output, v.missing, v.secret
	if s.planning {
		for p, state := range v.wrote {
			if _, will := s.predicted[p]; will || v.change != "" { // else it is not changed
				s.predicted[p] = state
			}
		}
	}
}

// predict records that a change was found whose effect on paths is not known.
func (s *session) predict(o op.Op, res op.Result) {
	if res.Status != op.Changed {
		return
	}
	switch o := o.(type) {
	case op.Exec:
		for _, p := range o.Creates {
			s.predicted[p] = ""
		}
	case op.Block:
		s.predicted[o.Path] = ""
	}
}

// stateOf returns the state of a path, now or after the earlier operations.
func (s *session) stateOf(path string) (string, error) {
	if state, ok := s.predicted[path]; ok {
		return state, nil
	}
	return ledger.State(s.path(path))
}

func (s *session) look(ctx context.Context, o op.Op) (verdict, error) {
	if err := clean(o); err != nil {
		return verdict{}, err
	}
	switch o := o.(type) {
	case op.File:
		v, err := s.checkFile(o)
		return s.unless(ctx, o.UnlessServes, v, err)
	case op.Dir:
		return s.checkDir(o)
	case op.Link:
		return s.checkLink(o)
	case op.Absent:
		return s.checkAbsent(o)
	case op.Block:
		return s.checkBlock(o)
	case op.Sysctl:
		return s.checkSysctl(o)
	case op.KernelModules:
		return s.checkModules(o)
	case op.SwapOff:
		return s.checkSwap(ctx)
	case op.Unit:
		return s.checkUnit(ctx, o)
	case op.UnitStarted:
		return s.unitStarted(ctx, o)
	case op.Hostname:
		return s.checkHostname(o)
	case op.Timezone:
		return s.checkTimezone(o)
	case op.TimeSync:
		return s.checkTimeSync(ctx, o)
	case op.User:
		return s.checkUser(o)
	case op.Serving:
		return s.checkServing(o)
	}
	switch o := o.(type) {
	case op.KeyPair:
		return s.checkKeyPair(o)
	case op.KubeconfigCA:
		return s.checkKubeconfigCA(o)
	case op.RegistryServes:
		return s.checkRegistryServes(ctx, o)
	case op.PushImages:
		return s.checkPush(ctx, o)
	case op.Copies:
		return s.copies(ctx, o)
	case op.EtcdDowngrade:
		return s.checkEtcdDowngrade(ctx, o)
	case op.Retire:
		return s.checkRetire(ctx, o)
	case op.ProxyChanges:
		return proxyChanges(ctx, proxyMetrics)
	}
	return s.lookOn(ctx, o)
}

func (s *session) lookOn(ctx context.Context, o op.Op) (verdict, error) {
	switch o := o.(type) {
	case op.FetchBlob:
		return s.checkBlob(o)
	case op.Unpack:
		v, err := s.checkUnpack(o)
		return s.unless(ctx, o.UnlessServes, v, err)
	case op.ImportImages:
		return s.checkImages(ctx, o)
	case op.Exec:
		return s.checkExec(ctx, o)
	case op.EtcdMember:
		return s.checkEtcdMember(ctx, o)
	case op.EtcdRemove:
		return s.checkEtcdRemove(ctx, o)
	case op.EtcdSnapshot:
		return s.checkEtcdSnapshot(ctx, o)
	case op.EtcdDefrag:
		return s.checkEtcdDefrag(ctx, o)
	case op.EtcdRestore:
		return s.checkEtcdRestore(ctx, o)
	case op.EtcdDrill:
		return s.checkEtcdDrill(o)
	case op.EtcdSalvage:
		return s.checkEtcdSalvage(o)
	case op.EtcdValues:
		return s.etcdValues(ctx, o)
	case op.Wait:
		return s.checkWait(ctx, o)
	case op.Certificate:
		return s.checkCertificate(o)
	case op.CertificateRequest:
		return s.checkRequest(o)
	case op.Certificates:
		return s.certificates(o)
	case op.Renewal:
		return s.checkRenewal(ctx, o)
	case op.Reload:
		return s.checkReload(o)
	case op.Kept:
		return s.checkKept(o)
	case op.Private:
		return s.checkPrivate(o)
	case op.Ask:
		return s.ask(ctx, o)
	case op.Self:
		return s.checkSelf(o)
	case op.ReadFile:
		return s.readFile(o)
	case op.Facts:
		return s.facts(ctx, o)
	case op.Reset:
		return s.checkReset(ctx, o)
	case op.PutBack:
		return s.checkPutBack(o)
	case op.Restore:
		return s.checkRestore(o)
	}
	return s.lookAtPods(ctx, o)
}

func (s *session) lookAtPods(ctx context.Context, o op.Op) (verdict, error) {
	switch o := o.(type) {
	case op.PodHosts:
		return s.checkPodHosts(o)
	case op.PodRestart:
		return s.checkPodRestart(o)
	case op.PodLogs:
		return s.podLogNames(ctx, o)
	case op.PodLog:
		return s.podLogEnd(o)
	}
	return verdict{}, invalid("this helper does not support operations of kind %q", o.Kind())
}

// apply applies one operation. res has the result of the check.
func (s *session) apply(ctx context.Context, o op.Op, res *op.Result) error {
	var err error
	switch o := o.(type) {
	case op.File:
		if err = s.pass(ctx, o.Gate); err == nil {
			err = s.applyFile(o)
		}
	case op.Dir:
		err = s.applyDir(o)
	case op.Link:
		err = s.applyLink(o)
	case op.Absent:
		err = s.applyAbsent(o)
	case op.Block:
		err = s.applyBlock(ctx, o)
	case op.Sysctl:
		err = s.applySysctl(o)
	case op.KernelModules:
		err = s.applyModules(ctx, o)
	case op.SwapOff:
		err = s.applySwap(ctx)
	case op.Unit:
		err = s.applyUnit(ctx, o)
	case op.Hostname:
		err = s.applyHostname(o)
	case op.Timezone:
		err = s.applyTimezone(o)
	case op.TimeSync:
		err = s.applyTimeSync(ctx, o)
	case op.User:
		err = s.applyUser(ctx, o)
	case op.EtcdDowngrade:
		err = s.applyEtcdDowngrade(ctx, o)
	case op.Retire:
		err = s.applyRetire(ctx, o)
	default:
		err = s.applyOn(ctx, o, res)
	}
	if err != nil {
		return fmt.Errorf("applying %s %s: %w", o.Kind(), o.Target(), err)
	}
	return nil
}

func (s *session) applyOn(ctx context.Context, o op.Op, res *op.Result) error {
	switch o := o.(type) {
	case op.FetchBlob:
		return s.applyBlob(ctx, o)
	case op.Unpack:
		if err := s.pass(ctx, o.Gate); err != nil {
			return err
		}
		return s.applyUnpack(ctx, o)
	case op.ImportImages:
		return s.applyImages(ctx, o)
	case op.Exec:
		return s.applyExec(ctx, o, res)
	case op.EtcdMember:
		return s.applyEtcdMember(ctx, o, res)
	case op.EtcdRemove:
		return s.applyEtcdRemove(ctx, o)
	case op.EtcdSnapshot:
		return s.applyEtcdSnapshot(ctx, o, res)
	case op.EtcdDefrag:
		return s.applyEtcdDefrag(ctx, o, res)
	case op.EtcdRestore:
		return s.applyEtcdRestore(ctx, o)
	case op.EtcdDrill:
		return s.applyEtcdDrill(ctx, o, res)
	case op.EtcdSalvage:
		return s.applyEtcdSalvage(ctx, o, res)
	case op.Certificate:
		return s.applyCertificate(o)
	case op.CertificateRequest:
		return s.applyRequest(o, res)
	case op.Renewal:
		return s.applyRenewal(ctx, o)
	case op.Reload:
		return s.applyReload(ctx, o)
	case op.Kept:
		return s.applyKept(ctx, o)
	case op.Private:
		return s.applyPrivate(o)
	case op.Self:
		return s.applySelf(o)
	case op.KeyPair:
		return s.applyKeyPair(o)
	case op.KubeconfigCA:
		return s.applyKubeconfigCA(o)
	case op.RegistryServes:
		return s.applyRegistryServes(ctx, o)
	case op.PushImages:
		return s.applyPush(ctx, o)
	case op.Reset:
		return s.applyReset(ctx, o, res)
	case op.PutBack:
		return s.applyPutBack(ctx, o)
	case op.Restore:
		return s.applyRestore(ctx, o, res)
	case op.Serving:
		return s.applyServing(ctx, o)
	}
	return s.applyToPods(ctx, o)
}

func (s *session) applyToPods(ctx context.Context, o op.Op) error {
	switch o := o.(type) {
	case op.PodHosts:
		return s.applyPodHosts(o)
	case op.PodRestart:
		return s.applyPodRestart(ctx, o)
	}
	return invalid("operations of kind %q cannot change anything", o.Kind())
}

// clean rejects paths that are not in canonical form.
func clean(o op.Op) error {
	var paths []string
	switch o := o.(type) {
	case op.File, op.Dir, op.Link, op.Absent, op.Sysctl, op.KernelModules, op.ReadFile, op.Kept, op.Self, op.KubeconfigCA, op.Copies:
		paths = []string{o.Target()}
	case op.Block:
		paths = []string{o.Path}
	case op.Unpack:
		paths = []string{o.Dir}
	case op.Unit:
		paths = append(append(paths, o.RestartOn...), o.Declares...)
	case op.Exec:
		paths = slices.Concat(o.Creates, o.Declares, o.Inputs, o.Replaces, o.Keeps)
	case op.EtcdMember:
		if o.Service == nil {
			return clean(o.Join)
		}
		if err := clean(o.Service.Unit); err != nil {
			return err
		}
		paths = []string{o.Service.Initial}
	case op.Certificate:
		paths = named(o.Cert, o.Key, o.CAKey)
	case op.CertificateRequest:
		paths = []string{o.Cert, o.Key}
	case op.KeyPair:
		paths = []string{o.Private, o.Public}
	case op.RegistryServes:
		paths = named(o.CAFile)
	case op.PushImages:
		paths = named(o.CAFile)
	case op.Certificates:
		for _, f := range o.Files {
			paths = append(paths, named(f.Path, f.Key, f.CA)...)
		}
	case op.Renewal:
		paths = named(o.Path, o.Key, o.CA, o.CAKey)
	case op.PodRestart:
		paths = append([]string{o.Manifest}, o.Files...)
	case op.Reload:
		paths = []string{o.Manifest, o.File}
	case op.Private:
		paths = o.Paths
	case op.Reset:
		paths = append(append(paths, o.Mounts...), o.Paths...)
	}
	for _, p := range paths {
		if !filepath.IsAbs(p) || strings.ContainsRune(p, 0) || filepath.Clean(p) != p {
			return invalid("%q is not a clean absolute path", p)
		}
	}
	return nil
}

// named returns the given paths.
func named(paths ...string) []string {
	return slices.DeleteFunc(paths, func(p string) bool { return p == "" })
}
