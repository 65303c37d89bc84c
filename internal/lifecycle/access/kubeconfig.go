package access

import (
	"context"
	"errors"
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/clusterstate"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/spec"
)

// Kubeconfig returns the admin kubeconfig, with the first address at which the API is
// ready. Live asks control planes instead of the store; warnings name the control planes
// whose kubeconfig was refused.
func (a *Access) Kubeconfig(ctx context.Context, name string, live bool) ([]byte, diag.List, error) {
	c, err := a.c.Clusters.Load(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	env, err := a.c.Clusters.Environment(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	kept := a.CurrentKubeconfig
	if live {
		kept = a.readLiveKubeconfig
	}
	conf, warnings, err := kept(ctx, env)
	if err != nil {
		return nil, warnings, err
	}
	conf, err = a.withReadyAddress(ctx, env, conf)
	return conf, warnings, err
}

// SavedKubeconfig returns the saved admin kubeconfig.
func (a *Access) SavedKubeconfig(ctx context.Context, name string) ([]byte, error) {
	c, err := a.c.Clusters.Load(ctx, name)
	if err != nil {
		return nil, err
	}
	conf, err := a.c.Records.Kubeconfigs().Load(ctx, name)
	if errors.Is(err, records.ErrNotFound) {
		return nil, diag.Refuse(idNoKubeconfig, "cluster "+name+" has no admin kubeconfig: its control plane is not running yet",
			"finish the creation: slipway resume "+name)
	}
	if err != nil {
		return nil, a.refuseUnreadable(name, err)
	}
	if _, err := kubeconfig.ParseAdmin(conf); err == nil {
		return conf, nil
	}
	// Earlier versions saved the fields of the host's file as they were.
	admin, err := kubeconfig.Untrusted{Text: conf}.Verify(nil)
	if err != nil {
		return nil, diag.Refuse(idDamaged, a.c.Records.Kubeconfigs().Location(name)+" cannot be used: "+err.Error(),
			"get it from a control plane: slipway kubeconfig "+name+" --live")
	}
	return clusterstate.MakeKubeconfigFor(module.Env{Cluster: c}, admin, OutsideAddress(c))
}

// refuseUnreadable returns the error for a saved kubeconfig that cannot be read.
func (a *Access) refuseUnreadable(name string, err error) error {
	var list diag.List
	if errors.As(err, &list) {
		return err
	}
	at := a.c.Records.Kubeconfigs().Location(name)
	return diag.Refuse(idDamaged, "the saved kubeconfig "+at+" cannot be read: "+err.Error(),
		"move "+at+" away, and get it from a control plane: slipway kubeconfig "+name+" --live")
}

// CurrentKubeconfig returns the saved admin kubeconfig. If its certificate
// has expired, hosts may have renewed theirs automatically: then it saves and returns the
// kubeconfig of a control plane. Warnings name the control planes whose kubeconfig was refused.
func (a *Access) CurrentKubeconfig(ctx context.Context, env module.Env) ([]byte, diag.List, error) {
	kept, err := a.SavedKubeconfig(ctx, env.Cluster.Name)
	if err != nil {
		return nil, nil, err
	}
	st := pki.ReadState(func(string) ([]byte, error) { return kept, nil }, op.CertificateFile{Path: "kubeconfig"})
	if st.Ends.IsZero() || a.c.Now().Before(st.Ends) {
		return kept, nil, nil
	}
	theirs, warnings, err := a.readLiveKubeconfig(ctx, env)
	if err != nil { // the caller's request reports the expiry
		var list diag.List
		if isOfHost(err, &list) {
			warnings = asWarnings(list)
		}
		return kept, warnings, nil
	}
	return theirs, warnings, a.c.Records.Kubeconfigs().Save(ctx, env.Cluster.Name, theirs)
}

// readLiveKubeconfig returns the admin kubeconfig of the first control plane that has a valid one.
// Warnings name the control planes before it whose kubeconfig was refused.
func (a *Access) readLiveKubeconfig(ctx context.Context, env module.Env) (conf []byte, warnings diag.List, err error) {
	recorded, err := a.c.Records.Kubeconfigs().Load(ctx, env.Cluster.Name)
	if err != nil && !errors.Is(err, records.ErrNotFound) {
		return nil, nil, a.refuseUnreadable(env.Cluster.Name, err)
	}
	var refusals diag.List
	var failed error
	for _, h := range spec.HostsWithRole(env.Cluster, v1alpha1.RoleControlPlane) {
		one, err := a.readHostKubeconfig(ctx, env, h, recorded)
		var list diag.List
		switch {
		case err == nil:
			return one, asWarnings(refusals), nil
		case isOfHost(err, &list):
			refusals = append(refusals, list...)
		default:
			failed = errors.Join(failed, err)
		}
	}
	if failed == nil && len(refusals) > 0 {
		return nil, nil, refusals
	}
	return nil, asWarnings(refusals), failed
}

// isOfHost reports whether the kubeconfig of a host is the reason for an error, and sets the
// list.
func isOfHost(err error, list *diag.List) bool {
	return errors.As(err, list) && ((*list)[0].ID == clusterstate.IDUntrusted || (*list)[0].ID == idNoKubeconfig)
}

func asWarnings(list diag.List) diag.List {
	out := slices.Clone(list)
	for i := range out {
		out[i].Severity = diag.Warning
	}
	return out
}

func (a *Access) readHostKubeconfig(ctx context.Context, env module.Env, h v1alpha1.Host, recorded []byte) (_ []byte, err error) {
	conn, err := a.c.Dialer.Dial(ctx, env.Cluster, h)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	result, err := hostconn.QueryResult(ctx, conn, op.ReadFile{Path: adminConf, Secret: true})
	var unreadable *op.Error
	switch {
	case errors.As(err, &unreadable):
		return nil, noHostKubeconfig(h.Name, adminConf+" on this control plane cannot be read: "+unreadable.Message)
	case err != nil:
		return nil, err
	case result.Missing:
		return nil, noHostKubeconfig(h.Name, adminConf+" does not exist on this control plane")
	}
	conf, err := clusterstate.MakeExternalKubeconfig(env, kubeconfig.Untrusted{Text: result.Output}, recorded)
	var list diag.List
	if errors.As(err, &list) {
		for i := range list {
			list[i].Host = h.Name
		}
	}
	return conf, err
}

// adminConf is the admin kubeconfig on a control plane.
const adminConf = "/etc/kubernetes/admin.conf"

// noHostKubeconfig returns the error for a control plane without a readable kubeconfig.
func noHostKubeconfig(host, message string) error {
	return diag.List{{
		ID: idNoKubeconfig, Severity: diag.Error, Host: host, Message: message,
		Hint: "use the saved kubeconfig: leave out --live; or restore the file from another control plane",
	}}
}

// WriteKubeconfigFile returns the path of an admin kubeconfig whose server responds now: the
// saved file, or a temporary one that done removes.
func (a *Access) WriteKubeconfigFile(ctx context.Context, env module.Env) (path string, done func(), warnings diag.List, err error) {
	name := env.Cluster.Name
	kept, warnings, err := a.CurrentKubeconfig(ctx, env)
	if err != nil {
		return "", nil, nil, err
	}
	conf, err := a.withReadyAddress(ctx, env, kept)
	if err != nil {
		return "", nil, nil, err
	}
	path, done, err = a.c.Files.Kubeconfig(ctx, name, conf)
	return path, done, warnings, err
}
