package operation

import (
	"maps"
	"slices"
)

// rows is the table. It is only read.
var rows = map[Kind]row{
	Create:          create,
	Apply:           apply,
	Delete:          delete,
	RollbackCreate:  rollbackCreate,
	InitOS:          initOS,
	InitRegistry:    initRegistry,
	AddNodes:        addNodes,
	DeleteNodes:     deleteNodes,
	ForgetNodes:     forgetNodes,
	Upgrade:         upgrade,
	RollbackUpgrade: rollbackUpgrade,
	RenewCerts:      renewCerts,
	RotateCA:        rotateCA,
	DefragEtcd:      defragEtcd,
	RestoreEtcd:     restoreEtcd,
	RescueEtcd:      rescueEtcd,
	RebootNodes:     rebootNodes,
	SnapshotEtcd:    snapshotEtcd,
	DrillEtcd:       drillEtcd,
	Resume:          resume,
}

// Kinds returns all kinds, sorted.
func Kinds() []Kind { return slices.Sorted(maps.Keys(rows)) }
