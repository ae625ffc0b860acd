# Two stages: what builds stays behind. tests/stack/test_image.py runs the same install commands in a clean venv.
FROM python:3.11.13-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY pyproject.toml README.md LICENSE hatch_build.py ./
COPY locks locks
COPY alembic alembic
COPY docs/examples docs/examples
COPY tools/npm.py tools/npm.py
COPY volsched volsched
COPY workers workers
# What builds is locked as well as what runs. Wheels only: there is no compiler here, and none is wanted.
RUN python -m pip install --quiet --only-binary :all: --require-hashes --requirement locks/build.lock
RUN python -m pip install --quiet --only-binary :all: --require-hashes --requirement locks/console.lock
RUN python -m tools.npm ci --omit=dev --loglevel=error
RUN python -m tools.npm run build --silent
RUN python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /dist .
RUN python -m venv /opt/volsched
RUN /opt/volsched/bin/python -m pip install --quiet --only-binary :all: --require-hashes --requirement locks/image.lock
RUN /opt/volsched/bin/python -m pip install --quiet --no-deps /dist/volsched-*.whl
RUN /opt/volsched/bin/python -m pip uninstall --quiet --yes pip setuptools

FROM python:3.11.13-slim-bookworm
LABEL org.opencontainers.image.title="volsched" org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --uid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin volsched
# A volume that is mounted here takes over whose it is.
RUN install --directory --mode=0700 --owner=10001 --group=10001 /anchors /secrets
# Each is the volume of one service, which reads it as a user of its own.
RUN for service in postgres redis migrate api scheduler controller worker prometheus grafana; do \
      install --directory --mode=0755 --owner=10001 --group=10001 /services/$service; done
COPY --from=build /opt/volsched /opt/volsched
ENV PATH=/opt/volsched/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /tmp
RUN ["volsched", "--version"]
# Of the API, which is what the image runs unless told otherwise; docker-compose.yml has one for each service.
HEALTHCHECK --interval=10s --timeout=60s --start-period=60s CMD ["python", "-m", "volsched.runtime.health_check", "api"]
CMD ["volsched", "serve", "api"]
