package embedpg

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const connectTimeout = 30 * time.Second

// createDatabase creates Tidewire's database if it is missing, and returns
// PostgreSQL's version.
func createDatabase(ctx context.Context, url string) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, "CREATE DATABASE "+database+" TEMPLATE template0")
	const duplicateDatabase = "42P04"
	if exists := (*pgconn.PgError)(nil); errors.As(err, &exists) && exists.Code == duplicateDatabase {
		err = nil
	}
	return serverVersion(conn), err
}

func askVersion(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return serverVersion(conn), nil
}

func serverVersion(conn *pgx.Conn) string {
	version, _, _ := strings.Cut(conn.PgConn().ParameterStatus("server_version"), " ")
	return version
}
