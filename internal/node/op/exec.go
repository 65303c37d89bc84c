package op

// Exec runs a program. Without a guard it is run whenever its task is applied
// and the plan says that it cannot be checked.
type Exec struct {
	// Name identifies the step: "kubeadm-init-certs". Unique on the host.
	Name string   `json:"name"`
	Argv []string `json:"argv"`
	Env  []string `json:"env,omitempty"`
	Dir  string   `json:"dir,omitempty"`
	// Stdin is fed to the program; SecretStdin keeps it out of records.
	Stdin       []byte `json:"stdin,omitempty"`
	SecretStdin bool   `json:"secretStdin,omitempty"`
	// TimeoutSeconds ends the program; 0 means 600.
	TimeoutSeconds int `json:"timeoutSeconds,omitempty"`
	// Creates are paths or globs the program makes. All there: nothing to
	// do. They enter the ledger before the program runs, as absent if they
	// were. A pattern without any match counts as missing, and so does an
	// empty file: a crash has left it.
	Creates []string `json:"creates,omitempty"`
	// Conclusive says that what the program creates comes last: once it is
	// there the work is done, however the last run has ended.
	Conclusive bool `json:"conclusive,omitempty"`
	// Declares are further globs the program may make; they enter the
	// ledger but are no guard.
	Declares []string `json:"declares,omitempty"`
	// Keeps are files that the program makes and nobody changes but it: text,
	// and no secret. What a run that succeeded has left there is kept for Kept,
	// and one that has gone since is no reason to run it again.
	Keeps []string `json:"keeps,omitempty"`
	// Again is why the program is to run though its guards hold, for people:
	// what it made elsewhere is not as it left it.
	Again string `json:"again,omitempty"`
	// Unless is a read-only program that exits 0 when there is nothing to
	// do. With Creates as well, both must hold.
	Unless []string `json:"unless,omitempty"`
	// Inputs are files whose content the result depends on: when one has
	// changed since the last successful run, the guards do not hold. Inputs
	// alone, without Creates and Unless, are a guard of their own: a run
	// that succeeded with the same inputs is not repeated.
	Inputs []string `json:"inputs,omitempty"`
	// Replaces are files that are removed before the program runs, because it
	// leaves alone what it finds. It wants Whole.
	Replaces []string `json:"replaces,omitempty"`
	// Whole runs the program as a transient systemd unit that neither a
	// lost connection nor a dead manager stops, and that a later run
	// attaches to. What stops it all the same, such as a reboot, leaves half
	// of its work: files of Creates and Declares that such a run has made
	// are removed before the next.
	Whole bool `json:"whole,omitempty"`
	// Resumes says that the program goes on from what a run that was cut has
	// left: all of it stays.
	Resumes bool `json:"resumes,omitempty"`
	// Gate is what the program waits for before it runs, and Then what is waited
	// for when it has: before that the run has not succeeded.
	Gate *Wait `json:"gate,omitempty"`
	Then *Wait `json:"then,omitempty"`
	// UnlessServes is what the program is for: as long as that answers, there is
	// nothing to do.
	UnlessServes *Wait `json:"unlessServes,omitempty"`
	// Hosts are what names stand for while the program runs, and for it
	// alone: addresses by name. It wants Whole.
	Hosts map[string]string `json:"hosts,omitempty"`
	// KeepOutput returns stdout in Result.Output (at most 1 MiB).
	KeepOutput bool `json:"keepOutput,omitempty"`
	// SecretOutput keeps output out of events and records.
	SecretOutput bool `json:"secretOutput,omitempty"`
}

// Whole says that a list holds a step that must not be cut in half.
func (l List) Whole() bool {
	for _, o := range l {
		switch o := o.(type) {
		case Exec:
			if o.Whole {
				return true
			}
		case EtcdMember:
			if o.Join.Whole {
				return true
			}
		case Restore:
			return true
		}
	}
	return false
}
