package lifecycle

import (
	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/lifecycle/operation"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/records"
)

// A Request asks for an operation. Each kind that a front end can ask for has its own
// type, with only the fields that operations of the kind use.
type Request interface {
	// Kind returns the kind of the operation.
	Kind() operation.Kind
	// shared returns the parts that requests of other kinds have too.
	shared() sharedRequest
	// behaviour returns how the operation is prepared, run and described.
	behaviour() behaviour
}

// A Subject is the cluster of a request: the cluster of a file, or a saved cluster.
type Subject struct {
	// Cluster is the wanted state, loaded and validated by package spec. If it is nil, the
	// request uses the saved cluster with this Name.
	Cluster *v1alpha1.Cluster
	Name    string
	// Source is the text of the cluster file, which is saved with the cluster. File is
	// its absolute path, "" if it was not a file. Dir is the directory for its
	// relative paths.
	Source []byte
	File   string
	Dir    string
}

// Options configure what the user ignores or overrides, in requests of all kinds.
type Options struct {
	// IgnoreChecks are precheck ids to ignore; they are saved with the operation.
	IgnoreChecks []string
	// IgnoreErrors lets other hosts finish when one fails.
	IgnoreErrors bool
	// BreakLock takes over a lock whose holder cannot be asked.
	BreakLock bool
	// TakeOver takes the cluster from the management server that manages it.
	TakeOver bool
}

// A sharedRequest has the parts of a request that the code for all kinds uses. A part that
// the kind does not have is empty.
type sharedRequest struct {
	Subject
	Options
	// removal configures how hosts leave the cluster, and how nodes are drained for an
	// upgrade. rollout configures how many nodes change at once.
	removal Removal
	rollout module.Upgrade
	// forget and keepFailed are Forget and KeepFailed of the request.
	forget, keepFailed bool
}

// start returns the operation that a request asks for, before anything of it is prepared.
func (s *Service) start(r Request) *prepared {
	return &prepared{svc: s, kind: r.Kind(), request: r.shared(), behaviour: r.behaviour()}
}

// withoutFile returns the subject of a request for the saved cluster.
func (s Subject) withoutFile() Subject { return Subject{Name: s.Name, Dir: s.Dir} }

// savedSource returns the cluster file to save, nil to keep the saved one.
func (s Subject) savedSource() *records.Source {
	if s.Source == nil {
		return nil
	}
	return &records.Source{Text: s.Source, Path: s.File}
}

// inFile adds the positions in the cluster file to findings, if the file is known.
func (s Subject) inFile(list diag.List) diag.List {
	if len(list) == 0 || len(s.Source) == 0 || s.File == "" {
		return list
	}
	loaded, err := reader(s.Cluster).Load(s.File, s.Source)
	if err != nil { // it was read before: this error belongs to something else
		return list
	}
	return loaded.AddPositions(list)
}

// refuseUnbounded refuses an invalid number of workers that may be out of service at once.
func refuseUnbounded(maxUnavailable string) error {
	if _, err := engine.ParseBound(maxUnavailable, 1); err != nil {
		return diag.Refuse(idUpgradeHow, "invalid number of workers that may be out of service at once: "+err.Error(),
			"write a number, or a percentage such as 20%")
	}
	return nil
}
