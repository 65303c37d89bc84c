package lifecycle

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/backups"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/module/precheck"
	"slipway.dev/slipway/internal/pipeline"
)

// A behaviour is how operations of one kind are prepared, run and described. Package
// operation has the facts about the kind. All functions are set; usual has the functions
// that most kinds share.
type behaviour struct {
	// wanted returns the wanted description of the cluster. saved reports whether it is
	// the saved one, which is not validated again.
	wanted func(ctx context.Context, p *prepared) (wanted *v1alpha1.Cluster, saved bool, err error)
	// writesManifests reports whether kubeadm writes the manifests of all control planes in
	// the saved version. Such an operation must not begin while another one is unfinished.
	writesManifests func() bool
	// instead makes the operation another one that is possible although this one is
	// refused, and reports whether it did.
	instead func(ctx context.Context, p *prepared, refusal error) bool
	// accepts refuses a valid description that the operation cannot apply.
	accepts func(recorded, wanted *v1alpha1.Cluster) error
	// begin refuses an operation that is not possible, and finds an earlier operation
	// that it continues.
	begin func(ctx context.Context, p *prepared) error
	// prepare reads what the operation needs besides hosts, before they are connected.
	prepare func(ctx context.Context, p *prepared, progress event.Sink) error
	// warnings returns the findings of prepare. findings returns the findings about the
	// cluster and its hosts, and hostFindings more of them after each host was checked.
	warnings     func(p *prepared) diag.List
	findings     func(ctx context.Context, p *prepared, o precheck.Options, progress event.Sink) (diag.List, error)
	hostFindings func(p *prepared) diag.List
	// observe determines on the hosts what the pipeline depends on.
	observe func(ctx context.Context, p *prepared) error
	// pipeline returns the pipeline.
	pipeline func(ctx context.Context, p *prepared, parts pipeline.Parts) (engine.Pipeline, error)
	// planned refuses a plan because of its steps.
	planned func(p *prepared) error
	// needs reports whether the operation cannot continue without a host. awaits reports
	// whether other nodes may change their version only after a host.
	needs  func(p *prepared, h *engine.Host) bool
	awaits func(h *engine.Host) bool
	// losses describes, for users, the data that is lost.
	losses func(p *prepared) []string
	// finish completes the result, and summary describes what works now.
	finish  func(p *prepared, o *v1alpha1.Operation, res *Result)
	summary func(ctx context.Context, p *prepared, res *Result) []string
	// save adds what only this kind has to the saved operation, and resume reads it.
	save   func(p *prepared, o *v1alpha1.OperationParameters)
	resume func(o *v1alpha1.OperationParameters)
	// rollBack makes this operation roll back another one, if this is its RollbackKind.
	rollBack func(ctx context.Context, p *prepared, o *v1alpha1.Operation) error
	close    func() error
}

// A requester returns the request for an operation with saved parameters. of is the cluster.
type requester func(of Subject, is *v1alpha1.OperationParameters) Request

// requesters returns the table of requests that a front end can make.
func requesters() map[operation.Kind]requester {
	type parameters = v1alpha1.OperationParameters
	return map[operation.Kind]requester{
		operation.Create: func(of Subject, is *parameters) Request { return CreateRequest{of, optionsOf(is)} },
		operation.Apply: func(of Subject, is *parameters) Request {
			return ApplyRequest{of, ApplyOptions{optionsOf(is), removalOf(is), is.MaxUnavailable, is.Forget, is.KeepFailed}}
		},
		operation.Delete: func(of Subject, is *parameters) Request {
			return DeleteRequest{of.withoutFile(), optionsOf(is), is.Forget}
		},
		operation.InitOS:       func(of Subject, is *parameters) Request { return InitOSRequest{of, optionsOf(is)} },
		operation.InitRegistry: func(of Subject, is *parameters) Request { return InitRegistryRequest{of, optionsOf(is)} },
		operation.AddNodes:     func(of Subject, is *parameters) Request { return AddNodesRequest{Subject: of, Options: optionsOf(is)} },
		operation.DeleteNodes: func(of Subject, is *parameters) Request {
			return DeleteNodesRequest{Name: of.Name, Options: optionsOf(is), Nodes: is.Nodes, Removal: removalOf(is), Forget: is.Forget}
		},
		operation.Upgrade: func(of Subject, is *parameters) Request {
			return UpgradeRequest{
				Subject: of, Options: optionsOf(is), Removal: removalOf(is), MaxUnavailable: is.MaxUnavailable, Version: is.Version,
			}
		},
		operation.RenewCerts: func(of Subject, is *parameters) Request {
			return RenewCertsRequest{of.Name, optionsOf(is), Renewal{All: is.AllCertificates, Within: is.Within.Duration, Names: is.Certificates}}
		},
		operation.RotateCA: func(of Subject, is *parameters) Request {
			return RotateCARequest{of.Name, optionsOf(is), slices.Sorted(maps.Keys(is.Rotates))}
		},
		operation.DefragEtcd: func(of Subject, is *parameters) Request { return DefragEtcdRequest{of.Name, optionsOf(is)} },
		operation.RestoreEtcd: func(of Subject, is *parameters) Request {
			return RestoreEtcdRequest{of.Name, optionsOf(is), is.Backup, is.Identity, trustOf(is)}
		},
		operation.RescueEtcd: func(of Subject, is *parameters) Request {
			return RescueEtcdRequest{Name: of.Name, Options: optionsOf(is), Lost: is.Nodes, From: is.Member}
		},
		operation.SnapshotEtcd: func(of Subject, is *parameters) Request {
			return SnapshotEtcdRequest{of.Name, optionsOf(is), backups.SnapshotOptions{
				Recipients: is.Recipients, Of: is.FromHost, Copy: is.FromCopy, SetTrust: trustOf(is),
			}}
		},
		operation.DrillEtcd: func(of Subject, is *parameters) Request {
			return DrillEtcdRequest{of.Name, optionsOf(is), backups.DrillOptions{From: is.Backup, Identity: is.Identity, SetTrust: trustOf(is)}}
		},
		operation.RebootNodes: func(of Subject, is *parameters) Request {
			return RebootNodesRequest{of.Name, optionsOf(is), is.Nodes, removalOf(is), is.MaxUnavailable}
		},
	}
}

// optionsOf and removalOf return the parts of a request that several kinds have.
func optionsOf(is *v1alpha1.OperationParameters) Options {
	return Options{IgnoreChecks: is.IgnoredChecks, TakeOver: is.TakeOver}
}

func removalOf(is *v1alpha1.OperationParameters) Removal {
	return Removal{Force: is.Force, DrainTimeout: is.DrainTimeout.Duration}
}

func trustOf(is *v1alpha1.OperationParameters) backups.SetTrust {
	return backups.SetTrust{SignedBy: is.SignedBy, Unverified: is.Unverified, WithKeys: is.WithKeys}
}

// behaviours returns the table of behaviours: a function for each kind, because a behaviour
// has the state of one operation. Operations of four kinds are only made from others.
func behaviours() map[operation.Kind]func() behaviour {
	table := map[operation.Kind]func() behaviour{
		operation.RollbackCreate:  rollbackCreate,
		operation.ForgetNodes:     forgetNodes,
		operation.RollbackUpgrade: rollbackUpgrade,
		operation.Resume:          continueAnother,
	}
	for kind, request := range requesters() {
		table[kind] = request(Subject{}, &v1alpha1.OperationParameters{}).behaviour
	}
	return table
}

// requestOf returns the request of an operation that has not begun. A creation that has failed is repeated by an
// apply, which becomes a creation.
func requestOf(o *v1alpha1.Operation, of Subject) (Request, error) {
	kind := operation.Kind(o.Spec.Kind)
	if !kind.RequestableInAPI() || kind.ContinuesAnother() { // the management plane continues the other one
		return nil, diag.Refuse(idNotRequestable, "an operation of kind "+o.Spec.Kind+" cannot be requested in an API",
			"change the Cluster object: add or remove hosts there")
	}
	if kind.CreatesCluster() {
		kind = operation.Apply
	}
	return requesters()[kind](of, &o.Spec.Parameters), nil
}

// Kind implements Request.
func (CreateRequest) Kind() operation.Kind { return operation.Create }

// Kind implements Request.
func (ApplyRequest) Kind() operation.Kind { return operation.Apply }

// Kind implements Request.
func (DeleteRequest) Kind() operation.Kind { return operation.Delete }

// Kind implements Request.
func (InitOSRequest) Kind() operation.Kind { return operation.InitOS }

// Kind implements Request.
func (InitRegistryRequest) Kind() operation.Kind { return operation.InitRegistry }

// Kind implements Request.
func (AddNodesRequest) Kind() operation.Kind { return operation.AddNodes }

// Kind implements Request.
func (DeleteNodesRequest) Kind() operation.Kind { return operation.DeleteNodes }

// Kind implements Request.
func (UpgradeRequest) Kind() operation.Kind { return operation.Upgrade }

// Kind implements Request.
func (RenewCertsRequest) Kind() operation.Kind { return operation.RenewCerts }

// Kind implements Request.
func (RotateCARequest) Kind() operation.Kind { return operation.RotateCA }

// Kind implements Request.
func (DefragEtcdRequest) Kind() operation.Kind { return operation.DefragEtcd }

// Kind implements Request.
func (RestoreEtcdRequest) Kind() operation.Kind { return operation.RestoreEtcd }

// Kind implements Request.
func (RescueEtcdRequest) Kind() operation.Kind { return operation.RescueEtcd }

// Kind implements Request.
func (RebootNodesRequest) Kind() operation.Kind { return operation.RebootNodes }

// Kind implements Request.
func (SnapshotEtcdRequest) Kind() operation.Kind { return operation.SnapshotEtcd }

// Kind implements Request.
func (DrillEtcdRequest) Kind() operation.Kind { return operation.DrillEtcd }

// behaviourOf returns a new behaviour of a kind, or an error for an unknown kind.
func behaviourOf(k operation.Kind) (behaviour, error) {
	b, ok := behaviours()[k]
	if !ok {
		return behaviour{}, fmt.Errorf("unknown operation %q", k)
	}
	return b(), nil
}

// become makes an operation one of a kind.
func (p *prepared) become(k operation.Kind) (err error) {
	p.kind = k
	p.behaviour, err = behaviourOf(k)
	return err
}

// usual returns a behaviour with everything except a pipeline and a summary.
func usual() behaviour {
	return behaviour{
		wanted:          fileOrSaved,
		writesManifests: func() bool { return false },
		instead:         func(context.Context, *prepared, error) bool { return false },
		accepts:         func(_, _ *v1alpha1.Cluster) error { return nil },
		begin:           func(context.Context, *prepared) error { return nil },
		prepare:         func(context.Context, *prepared, event.Sink) error { return nil },
		warnings:        func(*prepared) diag.List { return nil },
		findings:        func(context.Context, *prepared, precheck.Options, event.Sink) (diag.List, error) { return nil, nil },
		hostFindings:    func(*prepared) diag.List { return nil },
		observe:         func(context.Context, *prepared) error { return nil },
		planned:         func(*prepared) error { return nil },
		needs:           func(*prepared, *engine.Host) bool { return false },
		awaits:          func(*engine.Host) bool { return false },
		losses:          func(*prepared) []string { return nil },
		finish:          func(*prepared, *v1alpha1.Operation, *Result) {},
		save:            func(*prepared, *v1alpha1.OperationParameters) {},
		resume:          func(*v1alpha1.OperationParameters) {},
		rollBack: func(_ context.Context, _ *prepared, o *v1alpha1.Operation) error {
			return fmt.Errorf("an operation of kind %q is not rolled back by this kind", o.Spec.Kind)
		},
		close: func() error { return nil },
	}
}

// fileOrSaved returns the cluster of the file, or the saved one if there is no file.
func fileOrSaved(ctx context.Context, p *prepared) (*v1alpha1.Cluster, bool, error) {
	if p.request.Cluster == nil {
		return p.recorded.DeepCopy(), true, nil
	}
	wanted, err := p.svc.fromFile(ctx, p.request.Cluster, p.recorded)
	return wanted, false, err
}

// savedOrFile returns the saved cluster, or the cluster of the file if none is saved: a host
// that is missing in the file must not be forgotten.
func savedOrFile(ctx context.Context, p *prepared) (*v1alpha1.Cluster, bool, error) {
	if p.recorded != nil {
		return p.recorded.DeepCopy(), true, nil
	}
	return fileOrSaved(ctx, p)
}
