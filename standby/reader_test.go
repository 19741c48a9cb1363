package standby

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// TestReason: an operator is told why a standby is not read, without a host or a password.
func TestReason(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"its history is older than that of the primary":                                                        ErrHistory,
		"it belongs to another PostgreSQL cluster than the primary":                                            errOtherCluster,
		"it has no tables of Tidewire: it belongs to another PostgreSQL cluster, or has not received them yet": &pgconn.PgError{Code: "3F000"},
		"it has no such database": &pgconn.PgError{Code: "3D000"},
		"it is no standby: it was promoted, or the read URL leads to the primary": errNoStandby,
		"the role of the read URL may not read there":                             &pgconn.PgError{Code: "42501"},
		"it refuses the login":       &pgconn.PgError{Code: "28P01"},
		"it does not answer in time": context.DeadlineExceeded,
		"it cannot be reached":       &pgconn.PgError{Code: "57P03"},
		"a read has failed there":    errors.New("host secret.example password=secret"),
	} {
		if got := reason(fmt.Errorf("read stream: %w", err)); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
