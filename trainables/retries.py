"""Retry policy: what is tried again, how often, and after how long.

What ends, hangs or refuses  is tried again                                 and then
---------------------------  ---------------------------------------------  ------------------------
an arm's process             ARM_STARTS in all under one driver, while no   the arm is failed;
                             newer checkpoint comes; also without its GPU   --retry-failed: anew
a worker, before its arm     by Tune, WORKER_DEATHS of one trial            the driver ends
an arm without a report      ARM_STALLS times without one in between        the arm is failed
the first arms, all alike    ARMS_ALIKE, before any arm has a result        the sweep ends within
                                                                            ALIKE_ENDS_S; a resume
                                                                            trains them again
a driver on a cluster        DRIVER_DEATHS in all without progress, after   a person continues it
                             DRIVER_WAITS_S, once storage can be written    with `sweep resume`
storage, for that start      each STORAGE_LOOK_S, for STORAGE_WAIT_S        the driver is started
storage, for a writer        after STORE_FIRST_WAIT_S, doubled, at most     the arm or the driver
                             STORE_LONGEST_WAIT_S, for STORE_PATIENCE_S     ends; resume goes on
a final record, not seen     each RECORD_LOOK_S, for RECORD_SEEN_WITHIN_S   a resume looks again
data at an address           after each of DATA_WAITS_S                     the verb or arm ends
MLflow                       after MLFLOW_FIRST_WAIT_S, doubled, at most    `sweep sync` sends what
                             MLFLOW_LONGEST_WAIT_S, while the driver lives  it did not get
MLflow's artifact store      with the next arms, ARTIFACT_TRIES in a row    `sweep sync`, likewise
a webhook or command         after each of NEWS_WAITS_S                     a warning says so

Every arm goes on from its last checkpoint. Diverged and stopped arms are results, not failures.
"""

from __future__ import annotations

ARM_STARTS = 5
WORKER_DEATHS = 2 * ARM_STARTS  # an arm's own starts end first, where it gets as far as starting
ARM_STALLS = 2
ARMS_ALIKE = 3  # before any arm has come to a result
ALIKE_ENDS_S = 30.0  # after the last of them; arms that have not reported end where they are

DRIVER_DEATHS = 3
DRIVER_WAITS_S = (5.0, 30.0)  # a disk or the cluster may be away
STORAGE_WAIT_S = 3600.0
STORAGE_LOOK_S = 10.0

STORE_PATIENCE_S = 60.0
STORE_FIRST_WAIT_S = 0.5
STORE_LONGEST_WAIT_S = 8.0
RECORD_SEEN_WITHIN_S = 90.0
RECORD_LOOK_S = 2.0
DATA_WAITS_S = (1.0, 4.0, 15.0)

MLFLOW_FIRST_WAIT_S = 1.0
MLFLOW_LONGEST_WAIT_S = 60.0
ARTIFACT_TRIES = 3
NEWS_WAITS_S = (1.0, 4.0)
