package op

// Serving is what a host goes on doing, whatever the operations before it in a
// list change: what answered before the first of them changed something must
// answer after the last, each within its time. What did not answer is nobody's to
// wait for.
type Serving struct {
	// Name is the step whose changes are meant: "os.kernel".
	Name  string `json:"name"`
	Waits []Wait `json:"waits"`
	// SettleSeconds is for how long changes are left to show before anybody is
	// asked.
	SettleSeconds int `json:"settleSeconds,omitempty"`
}

// KindServing is what a host goes on doing.
const KindServing Kind = "serving"

// Kind is KindServing.
func (Serving) Kind() Kind { return KindServing }

// Target is the step.
func (o Serving) Target() string { return o.Name }
