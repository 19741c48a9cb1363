# untested: no container engine here
#
#   docker build -t tidewire .
#   docker run --rm -p 8080:8080 -v tidewire:/data -v ./secret:/secret -e TIDEWIRE_AUTH_SECRET_FILE=/secret -e 'TIDEWIRE_RULE=user: read stream:*' tidewire
#   docker run --rm -p 127.0.0.1:8080:8080 -e TIDEWIRE_OPEN=true tidewire     # a try, without authentication, on this machine alone
#   Add -e DATABASE_URL=postgres://… for your own PostgreSQL.

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
# Directories are copied by name, since the checkout also has caches, results and the Git history.
COPY cmd cmd
COPY eventstore eventstore
COPY internal internal
COPY migrate migrate
COPY queue queue
COPY standby standby
COPY stream stream
COPY websocket websocket
RUN CGO_ENABLED=0 go build -trimpath -ldflags=-s -o /tidewire ./cmd/tidewire

FROM debian:trixie-slim
# PostgreSQL's programs, for the private PostgreSQL that is used if no database
# is given. The setting below stops the package from creating a cluster that
# nobody needs.
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates postgresql-common \
 && sed -i 's/#create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf \
 && apt-get install -y --no-install-recommends postgresql \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --home-dir /data --create-home tidewire
COPY --from=build /tidewire /usr/local/bin/tidewire
USER tidewire
VOLUME /data
EXPOSE 8080
# On SIGTERM the server stores and answers what it has received, and then stops.
STOPSIGNAL SIGTERM
ENTRYPOINT ["tidewire"]
CMD ["serve", "--host", "0.0.0.0", "--data-dir", "/data/postgres"]
