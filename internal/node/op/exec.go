package op

// Query runs a read-only program and returns its output in Result.Output, at most 1 MiB. A
// program that is missing or fails gives no output (Result.Missing). It never changes
// anything.
type Query struct {
	Name  string   `json:"name"`
	Argv  []string `json:"argv"`
	Stdin []byte   `json:"stdin,omitempty"`
}

// KindQuery is the kind of Query.
const KindQuery Kind = "ask"

// Kind is KindQuery.
func (Query) Kind() Kind { return KindQuery }

// Target is the name of the query.
func (o Query) Target() string { return o.Name }

// Exec runs a program. Without a guard, it runs whenever its task is applied, and the
// plan shows that it cannot be checked.
type Exec struct {
	// Name identifies the step: "kubeadm-init-certs". It is unique on the host.
	Name string   `json:"name"`
	Argv []string `json:"argv"`
	Env  []string `json:"env,omitempty"`
	Dir  string   `json:"dir,omitempty"`
	// Stdin is passed to the program; SecretStdin keeps it out of saved state.
	Stdin       []byte `json:"stdin,omitempty"`
	SecretStdin bool   `json:"secretStdin,omitempty"`
	// TimeoutSeconds limits the run time; 0 means 600.
	TimeoutSeconds int `json:"timeoutSeconds,omitempty"`
	// Creates lists paths or globs that the program creates. If all of them exist, there
	// is nothing to do. They are recorded in the ledger before the program runs, as
	// absent if they were. A pattern without a match counts as missing, and so does an
	// empty file, which a crash can leave.
	Creates []string `json:"creates,omitempty"`
	// Conclusive reports whether the program creates its files last: if they exist, the
	// work is complete, whatever the result of the last run.
	Conclusive bool `json:"conclusive,omitempty"`
	// Declares lists more globs that the program can create. They are recorded in the
	// ledger, but are not a guard.
	Declares []string `json:"declares,omitempty"`
	// Keeps lists files that only the program changes: text without secrets. After a
	// successful run, their content is saved for BaselineFile. If such a file disappears, the
	// program does not run again because of it.
	Keeps []string `json:"keeps,omitempty"`
	// Again is the reason, for people, to run the program although its guards hold: other
	// results of the program have changed.
	Again string `json:"again,omitempty"`
	// Unless is a read-only program that exits with 0 if there is nothing to do. With
	// Creates, both must hold.
	Unless []string `json:"unless,omitempty"`
	// Inputs lists files whose content the result depends on: if one has changed since
	// the last successful run, the guards do not hold. Inputs without Creates and Unless
	// are a separate guard: a successful run with the same inputs is not repeated.
	Inputs []string `json:"inputs,omitempty"`
	// Replaces lists files that are removed before the program runs, because it does not
	// replace existing files. It needs Whole.
	Replaces []string `json:"replaces,omitempty"`
	// Whole runs the program as a transient systemd unit. A lost connection or a killed
	// manager does not stop the unit, and a later run attaches to it. If something else
	// stops it, such as a reboot, it leaves incomplete work: files of Creates and
	// Declares from that run are removed before the next one.
	Whole bool `json:"whole,omitempty"`
	// Resumes reports whether the program continues the work of an interrupted run: all
	// its files are kept.
	Resumes bool `json:"resumes,omitempty"`
	// Gate is the wait before the program runs, and Then the wait after it: the run has
	// succeeded only after that.
	Gate *Wait `json:"gate,omitempty"`
	Then *Wait `json:"then,omitempty"`
	// ThenLater leaves the wait of Then to later operations. Then decides only about the
	// gate: a program that does not serve is repaired without one.
	ThenLater bool `json:"thenLater,omitempty"`
	// UnlessServes is the purpose of the program: as long as it responds, there is
	// nothing to do.
	UnlessServes *Wait `json:"unlessServes,omitempty"`
	// Hosts maps names to addresses, for this program and only while it runs. It needs
	// Whole.
	Hosts map[string]string `json:"hosts,omitempty"`
	// KeepOutput returns stdout in Result.Output (at most 1 MiB).
	KeepOutput bool `json:"keepOutput,omitempty"`
	// SecretOutput keeps the output out of events and saved state.
	SecretOutput bool `json:"secretOutput,omitempty"`
}

// KindExec is the kind of Exec.
const KindExec Kind = "exec"

func (Exec) Kind() Kind { return KindExec }

func (o Exec) Target() string { return o.Name }

// HasWholeStep reports whether a list has a step that must not be interrupted.
func (l List) HasWholeStep() bool {
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
		case RestoreHost:
			return true
		}
	}
	return false
}
